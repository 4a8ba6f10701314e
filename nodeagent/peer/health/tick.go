package health

import (
	"math/rand/v2"
	"net/netip"
	"time"
)

const (
	// maxTickInterval is the longest time between two ticks.
	maxTickInterval = 10 * time.Second
	// coalesceTime is the minimum time between two ticks. It lets one wake-up handle many
	// targets. It is shorter for short intervals.
	coalesceTime = 2 * time.Millisecond
	// publishInterval is the minimum time between two publications. It is at least
	// publishPerTunnel for each tunnel.
	publishInterval  = 5 * time.Millisecond
	publishPerTunnel = 5 * time.Microsecond
	// idleRate limits the probes per second of all idle links together. The time between two
	// probes of an idle link is at least minIdleIntervals intervals, even above
	// maxIdleInterval. Otherwise it is at most maxIdleInterval.
	idleRate         = 100
	minIdleIntervals = 4
	maxIdleInterval  = 10 * time.Second
	// groupsPerInterval is the number of times in an interval at which idle links are probed.
	// One wake-up probes many links.
	groupsPerInterval = 5
	// updateRate limits triggered updates, per second and in one burst.
	updateRate = 2000
	// verifyRate limits the triggered updates that only verify a probe. Forged probes thus do
	// not delay other updates.
	verifyRate = updateRate / 4
)

// Sockets implements transport.Protocol.
func (p *Prober) Sockets(force bool) map[Listen]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.rebind && !force {
		return nil
	}
	p.rebind = false
	binds := make(map[Listen]bool, len(p.listen)+2)
	for _, bind := range p.listen {
		binds[bind] = true
	}
	for t := range p.targets {
		binds[t.bind()] = true
	}
	return binds
}

// Tick returns the packets that are due and the time until the next tick.
func (p *Prober) Tick(now time.Time) ([]outgoing, time.Duration) {
	p.mu.Lock()
	var out []outgoing
	changed := false
	if p.isolation.check(now, p.settings) {
		p.dirty, changed = true, true
	}
	out, targetsChanged := p.runDue(out, now)
	if p.dirty && now.Sub(p.publishedAt) >= p.minPublishInterval() {
		out = p.publishChanges(out, now)
		out, _ = p.runDue(out, now) // triggered updates
	}
	changed = changed || targetsChanged
	wait := p.untilNextTick(now)
	p.nextTick = now.Add(wait)
	p.mu.Unlock()
	if changed {
		p.notify()
	}
	return out, wait
}

// minPublishInterval returns the shortest time between two publications.
func (p *Prober) minPublishInterval() time.Duration {
	return max(publishInterval, publishPerTunnel*time.Duration(len(p.tunnels)))
}

// runDue runs the actions that are due for all targets. It reports whether a state changed.
func (p *Prober) runDue(out []outgoing, now time.Time) ([]outgoing, bool) {
	changed := false
	for t, ok := p.schedule.Next(now); ok; t, ok = p.schedule.Next(now) {
		out = p.runTarget(out, t, now)
		changed = p.detectChange(t, now) || changed
	}
	return out, changed
}

// rest returns the time until the next tick.
func (p *Prober) untilNextTick(now time.Time) time.Duration {
	wait := p.schedule.UntilNext(now, maxTickInterval)
	if p.dirty {
		wait = min(wait, p.publishedAt.Add(p.minPublishInterval()).Sub(now))
	}
	if at, ok := p.isolation.deadline(p.settings); ok {
		wait = min(wait, at.Sub(now))
	}
	return max(wait, min(coalesceTime, p.settings.Interval/50))
}

// runTarget runs the actions that are due for one target.
func (p *Prober) runTarget(out []outgoing, t *target, now time.Time) []outgoing {
	t.checkDead(now, p.settings)
	if t.intervals > 1 && t.liveness != Dead && t.overdue(now, p.settings) {
		t.next = now // an idle link missed a reply: probe at the full rate
	}
	if t.triggered.nonce != 0 && !t.triggered.at.After(now) {
		out = p.sendUpdate(out, t, now)
	}
	if !t.next.After(now) {
		m := p.probe(t, now)
		m.nonce = newNonce()
		m.sequence = t.probe(now, m.nonce, p.settings)
		out = append(out, p.datagram(t, &m))
		t.next = p.nextProbe(t, now)
	}
	p.reschedule(t, now)
	return out
}

// Sent counts sent and failed packets.
func (p *Prober) Sent(sent, failed uint64) {
	if sent+failed == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Sent += sent
	p.stats.Failed += failed
}

// newNonce returns an unpredictable number other than 0.
func newNonce() uint64 { return max(rand.Uint64(), 1) }

func (p *Prober) sendUpdate(out []outgoing, t *target, now time.Time) []outgoing {
	if !p.updateLimit.Allow(now, updateRate) {
		t.triggered.at = now.Add(10 * time.Millisecond)
		return out
	}
	m := p.probe(t, now)
	m.nonce, m.triggered = t.triggered.nonce, true
	t.triggered.tries++
	t.triggered.sent, t.triggered.at = now, now.Add(max(p.settings.Interval, 2*t.minRTT()))
	if t.triggered.tries == maxUpdateTries {
		t.triggered.nonce = 0
	}
	p.stats.Updates++
	return append(out, p.datagram(t, &m))
}

// probe returns a message with the common fields of all probes of a target.
func (p *Prober) probe(t *target, now time.Time) message {
	return message{
		from: p.self, to: t.hash, generation: t.received.generation, token: t.peerToken, linkAdvert: p.advertFor(t, now),
	}
}

func (p *Prober) datagram(t *target, m *message) outgoing {
	return outgoing{From: t.bind(), To: netip.AddrPortFrom(t.Addr, p.config.Port), Raw: m.encode()}
}

// next returns the time of the next probe. Jitter lets targets that started together drift apart.
// It only shortens the interval, so that it delays no detection. Idle targets start at random times
// and then stay in their group. After a pause, such as a suspended machine, missed probes are not
// repeated.
func (p *Prober) nextProbe(t *target, now time.Time) time.Time {
	previous := t.intervals
	t.intervals = p.intervalsFor(t, now)
	wait := p.settings.Interval * time.Duration(t.intervals)
	switch {
	case previous == 1 && t.intervals > 1:
		// A thousand links that come up together must drift apart soon.
		wait -= rand.N(wait - p.settings.Interval)
	case t.intervals == 1:
		wait -= rand.N(wait/20 + 1)
	}
	due := t.next.Add(wait)
	if due.Before(now) {
		return now.Add(p.settings.Interval)
	}
	if t.intervals > 1 {
		due = due.Add(-(due.Sub(p.startedAt) % (p.settings.Interval / groupsPerInterval)))
	}
	return due
}

// intervalsFor returns the number of intervals between two probes of a target.
func (p *Prober) intervalsFor(t *target, now time.Time) int {
	if !t.isRemote() || p.busy[t.Peer.Cluster] || t.needsFullRate(now, p.settings) {
		return 1
	}
	return p.idleIntervals
}

// inUse reports whether an end uses the link.
func (p *Prober) inUse(t *target) bool { return p.uses(t.Peer) || t.effectiveAdvert().inUse }

// uses reports whether this node uses its link to a remote gateway.
func (p *Prober) uses(remote GatewayID) bool {
	path, used := p.activeLinks[remote.Cluster]
	return used && p.gateway != "" && path.Local == p.gateway && path.Remote == remote.Gateway
}

// expediteProbe moves the next probe forward if the target needs the full rate.
func (p *Prober) expediteProbe(t *target, now time.Time) {
	if t.intervals == 1 || p.intervalsFor(t, now) > 1 {
		return
	}
	t.intervals = 1
	t.advanceProbe(now, p.settings.Interval)
	p.reschedule(t, now)
}

// reschedule updates the target in the schedule.
func (p *Prober) reschedule(t *target, now time.Time) {
	t.setWake(now, p.settings)
	p.schedule.Schedule(t, t.wake)
}
