package health

import (
	"math/rand/v2"
	"net/netip"
	"time"
)

const (
	// idle is the longest time between two ticks.
	idle = 10 * time.Second
	// coalesceTime is the minimum time between two ticks, so that one wake-up serves many targets.
	// It is shorter for short intervals.
	coalesceTime = 2 * time.Millisecond
	// publishInterval and publishPerTunnel are the minimum time between two publications; the
	// second one is added for each tunnel.
	publishInterval  = 5 * time.Millisecond
	publishPerTunnel = 5 * time.Microsecond
	// idleRate limits the probes per second of all idle links together. The time between two probes of an
	// idle link is at least minStretch intervals, and otherwise at most maxIdle.
	idleRate   = 100
	minStretch = 4
	maxIdle    = 10 * time.Second
	// groupsPerInterval is the number of times in an interval at which idle links are probed: one wake-up
	// serves many links.
	groupsPerInterval = 5
	// updateRate limits triggered updates per second and in one burst.
	updateRate = 2000
	// verifyRate limits the updates that only verify a probe, so that forged probes do not delay
	// other updates.
	verifyRate = updateRate / 4
)

// Sockets returns the sockets for listening and probing. Unless forced, it returns nil if they did not
// change.
func (p *Prober) Sockets(force bool) map[Listen]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.moved && !force {
		return nil
	}
	p.moved = false
	places := make(map[Listen]bool, len(p.listen)+2)
	for _, place := range p.listen {
		places[place] = true
	}
	for t := range p.targets {
		places[t.bind()] = true
	}
	return places
}

// Tick returns the packets that are due and the time until the next tick.
func (p *Prober) Tick(now time.Time) ([]outgoing, time.Duration) {
	p.mu.Lock()
	var out []outgoing
	changed := false
	if p.isolation.check(now, p.settings) {
		p.stale, changed = true, true
	}
	out, news := p.steps(out, now)
	if p.stale && now.Sub(p.announced) >= p.gap() {
		out = p.publishChanges(out, now)
		out, _ = p.steps(out, now) // triggered updates
	}
	changed = changed || news
	wait := p.rest(now)
	p.until = now.Add(wait)
	p.mu.Unlock()
	if changed {
		p.notify()
	}
	return out, wait
}

// gap returns the shortest time between two publications.
func (p *Prober) gap() time.Duration {
	return max(publishInterval, publishPerTunnel*time.Duration(len(p.tunnels)))
}

// steps runs the actions that are due for all targets, and reports whether a state changed.
func (p *Prober) steps(out []outgoing, now time.Time) ([]outgoing, bool) {
	changed := false
	for t, ok := p.schedule.Next(now); ok; t, ok = p.schedule.Next(now) {
		out = p.step(out, t, now)
		changed = p.detectChange(t, now) || changed
	}
	return out, changed
}

// rest returns the time until the next action.
func (p *Prober) rest(now time.Time) time.Duration {
	wait := p.schedule.UntilNext(now, idle)
	if p.stale {
		wait = min(wait, p.announced.Add(p.gap()).Sub(now))
	}
	if at, ok := p.isolation.deadline(p.settings); ok {
		wait = min(wait, at.Sub(now))
	}
	return max(wait, min(coalesceTime, p.settings.Interval/50))
}

// step runs the actions that are due for one target.
func (p *Prober) step(out []outgoing, t *target, now time.Time) []outgoing {
	t.checkDead(now, p.settings)
	if t.stretch > 1 && t.live != Dead && t.overdue(now, p.settings) {
		t.next = now // an idle link missed a reply: probe at the full rate
	}
	if t.triggered.nonce != 0 && !t.triggered.at.After(now) {
		out = p.sendUpdate(out, t, now)
	}
	if !t.next.After(now) {
		m := p.probe(t, now)
		m.nonce = nonce()
		m.sequence = t.probe(now, m.nonce, p.settings)
		out = append(out, p.outgoing(t, &m))
		t.next = p.next(t, now)
	}
	p.replan(t, now)
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

// nonce returns an unpredictable number other than 0.
func nonce() uint64 { return max(rand.Uint64(), 1) }

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
	return append(out, p.outgoing(t, &m))
}

// probe returns a message with the common fields of all probes of a target.
func (p *Prober) probe(t *target, now time.Time) message {
	return message{
		from: p.self, to: t.hash, generation: t.received.generation, token: t.peerToken, linkAdvert: p.advertFor(t, now),
	}
}

func (p *Prober) outgoing(t *target, m *message) outgoing {
	return outgoing{From: t.bind(), To: netip.AddrPortFrom(t.Addr, p.config.Port), Raw: m.encode()}
}

// next returns the time of the following probe: an interval with jitter, so that targets that started
// together drift apart. Jitter only shortens the interval, so that it delays no detection. Idle targets
// start at random times and then stay in their group. After a pause (a suspended machine) missed probes
// are not repeated.
func (p *Prober) next(t *target, now time.Time) time.Time {
	before := t.stretch
	t.stretch = p.rate(t, now)
	wait := p.settings.Interval * time.Duration(t.stretch)
	switch {
	case before == 1 && t.stretch > 1:
		// A thousand links that come up together must drift apart soon.
		wait -= rand.N(wait - p.settings.Interval)
	case t.stretch == 1:
		wait -= rand.N(wait/20 + 1)
	}
	due := t.next.Add(wait)
	if due.Before(now) {
		return now.Add(p.settings.Interval)
	}
	if t.stretch > 1 {
		due = due.Add(-(due.Sub(p.startedAt) % (p.settings.Interval / groupsPerInterval)))
	}
	return due
}

// rate returns the number of intervals between two probes of a target.
func (p *Prober) rate(t *target, now time.Time) int {
	if !t.isRemote() || p.busy[t.Peer.Cluster] || t.needsFullRate(now, p.settings) {
		return 1
	}
	return p.stretch
}

// inUse reports whether an end uses the link.
func (p *Prober) inUse(t *target) bool { return p.uses(t.Peer) || t.effectiveAdvert().inUse }

// uses reports whether this node uses its link to a remote gateway.
func (p *Prober) uses(remote GatewayID) bool {
	path, used := p.activeLinks[remote.Cluster]
	return used && p.gateway != "" && path.Local == p.gateway && path.Remote == remote.Gateway
}

// probeSooner advances the next probe if the target needs the full rate.
func (p *Prober) probeSooner(t *target, now time.Time) {
	if t.stretch == 1 || p.rate(t, now) > 1 {
		return
	}
	t.stretch = 1
	t.sooner(now, p.settings.Interval)
	p.replan(t, now)
}

// replan updates the target in the schedule.
func (p *Prober) replan(t *target, now time.Time) {
	t.plan(now, p.settings)
	p.schedule.Schedule(t, t.wake)
}
