package health

import "time"

// isolationDetector detects a gateway that receives neither probes of nodes nor replies of
// siblings. The gateway is isolated once packets are missing for as long as detection of a dead
// link takes. Its tunnels may work, but no other node can use it. The gateway recovers after it has
// received packets for isolationRecovery. Silence of draining siblings is planned and does not
// count: it must not lower the rank of the last remaining gateway.
type isolationDetector struct {
	otherNodes      int       // other nodes of the cluster
	draining        int       // other gateways of the cluster that drain
	lastPacket      time.Time // last packet of another node; zero = none yet
	isolated        bool
	recoveringSince time.Time // while isolated: first packet after the silence; zero = none
	postponed       bool      // the check was late and was postponed once
}

// isolationRecovery is how long an isolated gateway must receive packets before it recovers. At
// first it may not reach every node: the kernel repeats neighbour discovery only once a second
// (net.ipv4.neigh.*.retrans_time_ms).
const isolationRecovery = 1500 * time.Millisecond

// rank returns the rank of the gateway for other nodes. A recovering gateway ranks below every
// gateway that was not isolated, even below one with an unsteady link. It may not reach its whole
// cluster yet. It ranks above an isolated gateway: after an outage of all gateways, such as a
// switch restart, the two must differ.
func (d *isolationDetector) rank() Rank {
	switch {
	case !d.isolated:
		return Good
	case d.recoveringSince.IsZero():
		return Isolated
	}
	return Draining
}

// setOtherNodes sets the number of other nodes. It reports whether the rank changed.
func (d *isolationDetector) setOtherNodes(others int) bool {
	before := d.rank()
	if d.otherNodes = others; others == 0 {
		*d = isolationDetector{draining: d.draining}
	}
	return before != d.rank()
}

// onPacket records a packet from another node and reports whether the rank changed.
func (d *isolationDetector) onPacket(now time.Time, s Settings) bool {
	before := d.rank()
	silent := now.Sub(d.lastPacket) > isolationTimeout(s)
	if d.isolated && (d.recoveringSince.IsZero() || silent) {
		d.recoveringSince = now
	}
	d.lastPacket, d.postponed = now, false
	if d.isolated && now.Sub(d.recoveringSince) >= isolationRecovery {
		d.isolated, d.recoveringSince = false, time.Time{}
	}
	return before != d.rank()
}

// isolationTimeout returns the time without packets after which the gateway is isolated.
func isolationTimeout(s Settings) time.Duration {
	return s.Interval*time.Duration(s.Misses) + s.Interval/16
}

// deadline returns when the gateway becomes isolated if it receives no packet. Each node probes
// once per interval, so by then as many probes are missing as for a dead link.
func (d *isolationDetector) deadline(s Settings) (time.Time, bool) {
	if d.otherNodes <= d.draining || d.lastPacket.IsZero() || d.rank() == Isolated {
		return time.Time{}, false
	}
	return d.lastPacket.Add(isolationTimeout(s)), true
}

// check reports whether the gateway became isolated or recovered.
func (d *isolationDetector) check(now time.Time, s Settings) bool {
	deadline, ok := d.deadline(s)
	if !ok || now.Before(deadline) {
		return false
	}
	if now.Sub(deadline) > s.Interval/4 && !d.postponed {
		// This process did not run for a while. Unread probes may be queued.
		d.postponed = true
		d.lastPacket = d.lastPacket.Add(now.Sub(deadline) + s.Interval/8)
		return false
	}
	d.isolated, d.recoveringSince = true, time.Time{}
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
