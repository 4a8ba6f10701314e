// Package election elects the node of each gateway whose node is selected by labels. Each gateway
// has a Lease, as in Kubernetes' leader election. The node that holds the Lease is the gateway. A
// fence in the kernel drops the tunnels of a holder that did not renew its Lease in time, even if
// its agent hangs. Thus two nodes are never the same gateway at once. A State decides without I/O;
// an Elector reads and writes the Leases and writes the fence.
package election

import (
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/nodeagent/model"
)

// A holder renews its Lease every RenewInterval. RenewDeadline and FenceDeadline count from the
// start of its last successful renewal. The node is no longer the gateway after RenewDeadline. The
// kernel drops its tunnels after FenceDeadline. Another node acquires a Lease that it has observed
// unchanged for LeaseDuration. Each node measures with its own clock: LeaseDuration exceeds
// FenceDeadline by a third, so the rates of two clocks may differ by a third.
const (
	RenewInterval = 2 * time.Second
	RenewDeadline = 5 * time.Second
	FenceDeadline = 6 * time.Second
	LeaseDuration = 8 * time.Second
	// removedGrace is the time for which a holder renews the Lease of a gateway after its
	// removal from the topology. Other clusters may use the gateway until they have read the
	// same commit.
	removedGrace = 30 * time.Second
	// retryPeriod is the wait after a failed write.
	retryPeriod = 500 * time.Millisecond
	// acquireStagger is the delay between the candidates for a free Lease, so that they do not
	// all write at once. A candidate waits for at most maxAcquireStagger of these delays.
	acquireStagger    = 100 * time.Millisecond
	maxAcquireStagger = 20
)

// Lease is the record of the holder of one gateway.
type Lease struct {
	Gateway string `json:"gateway"`
	Holder  string `json:"holder"` // node; empty if no node holds the gateway
	// Transitions counts the changes of the holder (leaseTransitions).
	Transitions int `json:"transitions"`
	// Renewed is the time of the last renewal by the clock of its writer. It is never compared
	// with another clock.
	Renewed time.Time `json:"renewed"`
	// Released reports whether the last holder released the Lease after it fenced its tunnels.
	Released bool `json:"released,omitempty"`
	// Version is the version of the stored record. The store refuses a write with another
	// version.
	Version string `json:"version"`
}

// State is the state between two steps. The zero State holds no gateway.
type State struct {
	held           Lease // no Gateway: none
	renewedAt      time.Time
	releasing      Lease // to write without a holder; no Gateway: none
	releasingSince time.Time
	observed       map[string]observedLease
	retryAt        time.Time // no write before
	removedAt      time.Time // when the held gateway left the topology; zero while it has not
}

// observedLease is a Lease and the time of its last observed change.
type observedLease struct {
	lease Lease
	since time.Time
}

// Held returns the gateway that this node holds at now, and the time until which it holds it.
// gateway is empty if this node holds none.
func (s State) Held(now time.Time) (gateway string, until time.Time) {
	until = s.renewedAt.Add(RenewDeadline)
	if s.held.Gateway == "" || !now.Before(until) {
		return "", time.Time{}
	}
	return s.held.Gateway, until
}

// FenceUntil returns the time from which the kernel must drop this node's tunnels.
func (s State) FenceUntil() time.Time { return s.renewedAt.Add(FenceDeadline) }

// Holders returns the nodes that hold gateways, by gateway. This node is included only while
// Held returns its gateway.
func (s State) Holders(node string, now time.Time) map[string]string {
	out := map[string]string{}
	for name, o := range s.observed {
		if o.lease.Holder != "" && o.lease.Holder != node {
			out[name] = o.lease.Holder
		}
	}
	if own, _ := s.Held(now); own != "" {
		out[own] = node
	}
	return out
}

// Step returns the next state, the Lease to write now (nil if none), and the latest time of the
// next step.
func (s State) Step(v ClusterView, now time.Time) (next State, write *Lease, nextAt time.Time) {
	next = s
	next.observed = map[string]observedLease{}
	for _, g := range v.Gateways {
		if l, ok := v.Leases[g.Name]; ok {
			o, known := s.observed[g.Name]
			if !known || o.lease != l {
				o = observedLease{l, now}
			}
			next.observed[g.Name] = o
		}
	}
	next = next.checkHeld(v, now)
	switch nextAt = now.Add(RenewInterval); {
	case next.held.Gateway != "":
		nextAt = timerqueue.Later(next.renewedAt.Add(RenewInterval), next.retryAt)
		if !now.Before(nextAt) {
			renewal := next.held
			renewal.Renewed = now
			write, nextAt = &renewal, now.Add(retryPeriod)
		}
		if deadline := next.renewedAt.Add(RenewDeadline); deadline.Before(nextAt) {
			nextAt = deadline
		}
	case next.releasing.Gateway != "":
		if nextAt = next.retryAt; !now.Before(nextAt) {
			release := next.releasing
			release.Holder, release.Renewed, release.Released = "", now, true
			write, nextAt = &release, now.Add(retryPeriod)
		}
	default:
		var at time.Time
		if write, at = next.tryAcquire(v, now); !at.IsZero() && at.Before(nextAt) {
			nextAt = at
		}
	}
	return next, write, nextAt
}

// checkHeld returns the state without the held gateway if this node may no longer hold it. It
// starts a release removedGrace after the gateway was removed from the topology. It also starts a
// release for a successor if the agent stops or the node no longer matches.
func (s State) checkHeld(v ClusterView, now time.Time) State {
	if s.releasing.Gateway != "" && now.Sub(s.releasingSince) > LeaseDuration {
		s.releasing = Lease{} // the Lease has expired
	}
	if s.held.Gateway == "" {
		return s
	}
	if own, _ := s.Held(now); own == "" {
		s.held = Lease{}
		return s
	}
	if l := s.observed[s.held.Gateway].lease; l.Holder != v.Node && l.Transitions > s.held.Transitions {
		s.held = Lease{}
		return s
	}
	i := slices.IndexFunc(v.Gateways, func(g Gateway) bool { return g.Name == s.held.Gateway })
	if i < 0 && !v.Decommission && !v.Stopping {
		if s.removedAt.IsZero() {
			s.removedAt = now
		}
		if now.Sub(s.removedAt) < removedGrace {
			return s
		}
	} else {
		s.removedAt = time.Time{}
	}
	if i < 0 || (v.Stopping || !v.matches(v.Node, v.Gateways[i])) && s.hasSuccessor(v, v.Gateways[i]) {
		return s.StartRelease(now)
	}
	return s
}

// tryAcquire returns the Lease that acquires a gateway, or nil and the time from which this node
// may acquire one. A Lease that still names this node, as after a restart of the agent, comes
// first.
func (s State) tryAcquire(v ClusterView, now time.Time) (write *Lease, at time.Time) {
	if v.Stopping || slices.Contains(v.NamedNodes, v.Node) {
		return nil, at
	}
	var free []Gateway
	for _, g := range v.Gateways {
		o, ok := s.observed[g.Name]
		if !ok {
			continue
		}
		if o.lease.Holder == v.Node && (v.matches(v.Node, g) || !s.hasSuccessor(v, g)) {
			free = []Gateway{g}
			break
		}
		if v.matches(v.Node, g) && o.lease.Holder != v.Node && !v.Drained {
			free = append(free, g)
		}
	}
	var best Gateway
	for _, g := range free {
		if when := s.acquireAfter(v, g); at.IsZero() || when.Before(at) {
			best, at = g, when
		}
	}
	if at = timerqueue.Later(at, s.retryAt); best.Name == "" || now.Before(at) {
		return nil, at
	}
	l := s.observed[best.Name].lease
	if l.Holder != v.Node {
		l.Transitions++
	}
	l.Holder, l.Renewed, l.Released = v.Node, now, false
	return &l, now.Add(retryPeriod)
}

// acquireAfter returns the time from which this node may acquire a gateway: at once after a
// release, otherwise after the Lease has expired. A hash determines the order of the candidates.
func (s State) acquireAfter(v ClusterView, g Gateway) time.Time {
	o := s.observed[g.Name]
	if o.lease.Holder == v.Node {
		return o.since
	}
	from := o.since
	if !o.lease.Released {
		from = from.Add(LeaseDuration)
	}
	position, own := 0, score(v.Node, g.Name)
	for i := range v.Nodes {
		n := v.Nodes[i].Name
		if n != v.Node && n != o.lease.Holder && s.isEligible(v, n, g) && score(n, g.Name) > own {
			position++
		}
	}
	return from.Add(time.Duration(min(position, maxAcquireStagger)) * acquireStagger)
}

// hasSuccessor reports whether another node could acquire a gateway that this node releases.
func (s State) hasSuccessor(v ClusterView, g Gateway) bool {
	return slices.ContainsFunc(v.Nodes, func(n model.Node) bool { return n.Name != v.Node && s.isEligible(v, n.Name, g) })
}

// isEligible reports whether a node could acquire a gateway: it matches the selector and is not
// another gateway.
func (s State) isEligible(v ClusterView, node string, g Gateway) bool {
	if !v.matches(node, g) || slices.Contains(v.NamedNodes, node) {
		return false
	}
	for name, o := range s.observed {
		if name != g.Name && o.lease.Holder == node {
			return false
		}
	}
	return true
}

// WriteSucceeded returns the state after a write that started at startedAt and stored a Lease.
func (s State) WriteSucceeded(stored Lease, startedAt time.Time) State {
	s.observed = maps.Clone(s.observed)
	s.observed[stored.Gateway] = observedLease{stored, startedAt}
	s.retryAt = time.Time{}
	if stored.Holder == "" {
		s.releasing = Lease{}
		return s
	}
	s.held, s.renewedAt = stored, startedAt
	return s
}

// WriteFailed returns the state after a failed write, which the store may have stored anyway. found
// is the Lease that the agent read after a conflict, nil if unknown. If found names another node,
// this node no longer holds the gateway.
func (s State) WriteFailed(node string, found *Lease, now time.Time) State {
	s.retryAt = now.Add(retryPeriod)
	if found == nil {
		return s
	}
	switch {
	case s.held.Gateway == found.Gateway && found.Holder != node:
		s.held = Lease{}
	case s.held.Gateway == found.Gateway:
		s.held.Version, s.retryAt = found.Version, time.Time{}
	case s.releasing.Gateway == found.Gateway && found.Holder != node:
		s.releasing = Lease{}
	case s.releasing.Gateway == found.Gateway:
		s.releasing.Version, s.retryAt = found.Version, time.Time{}
	}
	return s
}

// StartRelease returns the state in which this node holds no gateway and releases its Lease.
func (s State) StartRelease(now time.Time) State {
	if s.held.Gateway != "" {
		s.releasing, s.held, s.releasingSince = s.held, Lease{}, now
	}
	return s
}

func score(node, gateway string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node + "\x00" + gateway))
	// The last bytes of the input hardly change the upper bits of an FNV hash. These steps,
	// from MurmurHash3's finalizer, mix the bits.
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	return x ^ x>>33
}
