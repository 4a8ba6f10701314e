package health

import "time"

// isolationDetector watches whether a gateway still hears the other nodes of its cluster:
// their probes, and replies of the other gateways. A gateway that heard some and
// then none for as long as a death takes is alone: it may have its tunnels, but
// is of no use to anybody but itself. It is one of them again when it has heard
// them for a while. Gateways that said that they drain are not waited for: their
// silence is planned, and the last one that stays must not be thought less of.
type isolationDetector struct {
	others   int       // other nodes of the cluster
	leaving  int       // those of them that said that they drain
	heard    time.Time // any of them; zero = never yet
	isolated bool
	since    time.Time // while alone: since when it hears them again; zero = it does not
	excused  bool      // the verdict came late and was put off once
}

// isolationRecovery is how long a gateway that was alone must hear its cluster before it is
// as good as any other. Whom it hears is not all that it has to reach: the kernel asks for
// the hardware address of a neighbour that did not answer only once a second
// (net.ipv4.neigh.*.retrans_time_ms).
const isolationRecovery = 1500 * time.Millisecond

// rank is how fit the gateway is for others. One that returns is worse than any
// that never left, one with an unsteady link too, as it does not reach all of its
// cluster yet. It is better than one that hears nobody: after a moment in which all
// went unheard (a switch that restarts) they must not look alike.
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
		*m = isolationDetector{leaving: m.leaving}
	}
	return was != m.rank()
}

// onPacket notes a packet from another node. It reports whether the rank changed.
func (m *isolationDetector) onPacket(now time.Time, s Settings) bool {
	was := m.rank()
	if m.isolated && (m.since.IsZero() || now.Sub(m.heard) > silence(s)) {
		m.since = now
	}
	m.heard, m.excused = now, false
	if m.isolated && now.Sub(m.since) >= isolationRecovery {
		m.isolated, m.since = false, time.Time{}
	}
	return was != m.rank()
}

// silence is how long nobody is heard before the gateway is alone.
func silence(s Settings) time.Duration {
	return s.Interval*time.Duration(s.Misses) + s.Interval/16
}

// deadline is when the gateway is alone unless it hears somebody. Everybody
// probes once an interval, so that by then as many probes are missing as for a death.
func (m *isolationDetector) deadline(s Settings) (time.Time, bool) {
	if m.others <= m.leaving || m.heard.IsZero() || m.rank() == Isolated {
		return time.Time{}, false
	}
	return m.heard.Add(silence(s)), true
}

// judge reports whether the gateway is alone from now on, or again.
func (m *isolationDetector) judge(now time.Time, s Settings) bool {
	at, ok := m.deadline(s)
	if !ok || now.Before(at) {
		return false
	}
	if now.Sub(at) > s.Interval/4 && !m.excused {
		// This process did not run for a while, so probes may be here unread.
		m.excused = true
		m.heard = m.heard.Add(now.Sub(at) + s.Interval/8)
		return false
	}
	m.isolated, m.since = true, time.Time{}
	return true
}

// drainingSiblings counts the gateways of the own cluster that said that they drain.
func (p *Prober) drainingSiblings() int {
	leaving := map[uint64]bool{}
	for _, t := range p.targets {
		if !t.isRemote() && t.leaving {
			leaving[t.hash] = true
		}
	}
	return len(leaving)
}

// onSiblingReply takes a reply of another gateway of the cluster. It reports whether this
// one's rank changed.
func (p *Prober) onSiblingReply(now time.Time, t *target, said Rank) bool {
	if leaving := said == Draining; leaving != t.leaving {
		t.leaving = leaving
		p.mates.leaving = p.drainingSiblings()
	}
	return p.mates.onPacket(now, p.settings)
}
