package health

import "time"

// isolationDetector detects a gateway that receives no packets from its own cluster: neither probes
// of nodes nor replies of siblings. If packets stop for as long as a link takes to die, the gateway
// is isolated: its tunnels may work, but no other node can use it. It recovers after it received
// packets for isolationRecovery. Draining siblings do not count: their silence is planned, and the
// last remaining gateway must not be ranked lower for it.
type isolationDetector struct {
	others     int       // other nodes of the cluster
	draining   int       // others that drain
	lastPacket time.Time // last packet of any of them; zero = none yet
	isolated   bool
	since      time.Time // while isolated: first packet after the silence; zero = none
	excused    bool      // the check ran late and was postponed once
}

// isolationRecovery is how long an isolated gateway must receive packets before it counts like the
// others. It may not reach every node yet: the kernel repeats neighbour discovery only once a
// second (net.ipv4.neigh.*.retrans_time_ms).
const isolationRecovery = 1500 * time.Millisecond

// rank returns the rank of the gateway for other nodes. A gateway that recovers ranks below all that
// were never isolated, even with an unsteady link, because it may not reach its whole cluster
// yet. It ranks above an isolated one: after an outage of all (a switch restart) the two must
// differ.
func (m *isolationDetector) rank() Rank {
	switch {
	case !m.isolated:
		return Good
	case m.since.IsZero():
		return Isolated
	}
	return Draining
}

// expect sets the number of other nodes. It reports whether the rank changed.
func (m *isolationDetector) expect(others int) bool {
	was := m.rank()
	if m.others = others; others == 0 {
		*m = isolationDetector{draining: m.draining}
	}
	return was != m.rank()
}

// onPacket records a packet from another node and reports whether the rank changed.
func (m *isolationDetector) onPacket(now time.Time, s Settings) bool {
	was := m.rank()
	if m.isolated && (m.since.IsZero() || now.Sub(m.lastPacket) > silence(s)) {
		m.since = now
	}
	m.lastPacket, m.excused = now, false
	if m.isolated && now.Sub(m.since) >= isolationRecovery {
		m.isolated, m.since = false, time.Time{}
	}
	return was != m.rank()
}

// silence returns the time without packets after which the gateway is isolated.
func silence(s Settings) time.Duration {
	return s.Interval*time.Duration(s.Misses) + s.Interval/16
}

// deadline returns when the gateway becomes isolated without a packet. Each node probes once per
// interval, so as many probes are missing by then as for a dead link.
func (m *isolationDetector) deadline(s Settings) (time.Time, bool) {
	if m.others <= m.draining || m.lastPacket.IsZero() || m.rank() == Isolated {
		return time.Time{}, false
	}
	return m.lastPacket.Add(silence(s)), true
}

// check reports whether the gateway became isolated or recovered.
func (m *isolationDetector) check(now time.Time, s Settings) bool {
	at, ok := m.deadline(s)
	if !ok || now.Before(at) {
		return false
	}
	if now.Sub(at) > s.Interval/4 && !m.excused {
		// This process did not run for a while; unread probes may be queued.
		m.excused = true
		m.lastPacket = m.lastPacket.Add(now.Sub(at) + s.Interval/8)
		return false
	}
	m.isolated, m.since = true, time.Time{}
	return true
}

// drainingSiblings returns the number of siblings that drain.
func (p *Prober) drainingSiblings() int {
	draining := map[uint64]bool{}
	for _, t := range p.targets {
		if !t.isRemote() && t.draining {
			draining[t.hash] = true
		}
	}
	return len(draining)
}

// onSiblingReply handles a reply of another gateway of the cluster. It reports whether the rank of
// this gateway changed.
func (p *Prober) onSiblingReply(now time.Time, t *target, rank Rank) bool {
	if draining := rank == Draining; draining != t.draining {
		t.draining = draining
		p.isolation.draining = p.drainingSiblings()
	}
	return p.isolation.onPacket(now, p.settings)
}
