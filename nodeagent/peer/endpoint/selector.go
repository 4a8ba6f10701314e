package endpoint

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/internal/timerqueue"
	"hawser.dev/hawser/nodeagent/model"
)

// Remote is a gateway of another cluster, with its candidates.
type Remote struct {
	Name       string            // cluster/gateway
	Candidates []model.Candidate // in order of preference; empty = the peer dials in
	// Improves reports whether this end moves the link to a better candidate while it is up.
	// If both ends use the same address pair, only one of them does: two ends with different
	// preferences would move the link back and forth.
	Improves bool
	// CanProbe reports whether the peer replies to endpoint probes while the link is down. If not,
	// candidates are dialled one after the other.
	CanProbe bool
	// NeedsSecondary reports whether a move recreates the tunnel, which interrupts the link. A link
	// that is up then moves over a secondary tunnel. A link that looks down stays while its
	// candidate still replies.
	NeedsSecondary bool
}

// LinkState is the observed state of a link.
type LinkState struct {
	Alive        bool           // probes arrive
	ObservedAddr netip.AddrPort // of the peer, with the port as in model.Candidate; invalid = unknown
	// OnSecondary reports whether this end sends over the secondary tunnel, and SecondaryOnly
	// whether no other tunnel is left.
	OnSecondary   bool
	SecondaryOnly bool
}

// ProbeRequest names a gateway and the address at which to probe it.
type ProbeRequest struct {
	Name string
	Addr netip.AddrPort
}

// Decision is the result of a step.
type Decision struct {
	Probes  []ProbeRequest // to send now
	Moved   bool           // RemoteEndpoints changed since the previous step
	Resolve bool           // a link is down: names may have other addresses now
	Next    time.Time      // of the next step
}

// Selector selects a candidate for each remote gateway. It is not safe for concurrent use.
type Selector struct {
	selections map[string]*selection
	queue      timerqueue.Queue[*selection] // by the time of the next step
	saved      map[string]netip.AddrPort
}

// noDeadline is the time between steps if there is no deadline.
const noDeadline = time.Hour

// New returns a Selector. saved is the result of Working in the previous agent.
func New(saved map[string]netip.AddrPort) *Selector {
	return &Selector{selections: map[string]*selection{}, saved: saved}
}

// Set replaces the remotes. Remotes that were set before keep their state.
func (s *Selector) Set(remotes []Remote, now time.Time) {
	wanted := map[string]bool{}
	for _, r := range remotes {
		wanted[r.Name] = true
		one := s.selections[r.Name]
		if one == nil {
			one = newSelection(r, s.saved[r.Name], now)
			s.selections[r.Name] = one
		} else {
			one.update(r, now)
		}
		one.published = one.endpoint
		s.queue.Schedule(one, now)
	}
	for name, one := range s.selections {
		if !wanted[name] {
			s.queue.Remove(one)
			delete(s.selections, name)
		}
	}
}

// UpdateLink sets the observed state of a link.
func (s *Selector) UpdateLink(name string, link LinkState, now time.Time) {
	if one := s.selections[name]; one != nil {
		one.updateLink(link, now)
		s.queue.Schedule(one, now)
	}
}

// OnReply records the reply to a probe.
func (s *Selector) OnReply(p ProbeRequest, now time.Time) {
	if one := s.selections[p.Name]; one != nil && one.isCandidate(p.Addr) {
		one.onReply(p.Addr, now)
		s.queue.Schedule(one, now)
	}
}

// Step handles all deadlines that passed.
func (s *Selector) Step(now time.Time) Decision {
	var d Decision
	for one, ok := s.queue.Next(now); ok; one, ok = s.queue.Next(now) {
		if addr, probe := one.step(now); probe {
			d.Probes = append(d.Probes, ProbeRequest{Name: one.Name, Addr: addr})
		}
		d.Moved = d.Moved || one.endpoint != one.published
		d.Resolve = d.Resolve || one.resolve
		one.published, one.resolve = one.endpoint, false
		s.queue.Schedule(one, one.nextStep(now))
	}
	slices.SortFunc(d.Probes, func(a, b ProbeRequest) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Addr.Compare(b.Addr))
	})
	d.Next = now.Add(s.queue.UntilNext(now, noDeadline))
	return d
}

// Idle reports whether no step is due.
func (s *Selector) Idle(now time.Time) bool {
	_, due := s.queue.Next(now)
	return !due
}

// RemoteEndpoints returns the endpoint to dial for each gateway.
func (s *Selector) RemoteEndpoints() map[string]model.RemoteEndpoint {
	out := make(map[string]model.RemoteEndpoint, len(s.selections))
	for name, one := range s.selections {
		out[name] = one.endpoint
	}
	return out
}

// Working returns the candidates that worked, to be saved for the next agent.
func (s *Selector) Working() map[string]netip.AddrPort {
	out := map[string]netip.AddrPort{}
	for name, one := range s.selections {
		switch {
		case one.usesSecondary():
			out[name] = one.endpoint.Pending
		case one.endpoint.Addr.IsValid() && (one.link.Alive || one.endpoint.Addr == s.saved[name]):
			out[name] = one.endpoint.Addr
		}
	}
	return out
}

// ObservedAddrs returns the observed addresses of peers whose links are up.
func (s *Selector) ObservedAddrs() ObservedAddrs {
	out := ObservedAddrs{}
	for name, one := range s.selections {
		if one.link.Alive && one.link.ObservedAddr.IsValid() {
			out[name] = one.link.ObservedAddr
		}
	}
	return out
}

// Reason returns, for users, which candidate of a gateway is in use and why; empty for a
// gateway that was not set.
func (s *Selector) Reason(name string) string {
	one := s.selections[name]
	if one == nil {
		return ""
	}
	n := len(one.Candidates)
	rank := one.rank(one.link.ObservedAddr)
	switch {
	case n == 0:
		return "no endpoint: the peer dials in"
	case !one.link.Alive:
		return "searching: " + one.probeResults(n)
	case rank == n:
		return "the peer dialled in; " + one.probeResults(n)
	case rank == 0:
		return fmt.Sprintf("%s, the first of %d", one.Candidates[0].Text, n)
	}
	return fmt.Sprintf("%s, number %d of %d: %s", one.Candidates[rank].Text, rank+1, n, one.probeResults(rank))
}

// probeResults describes the probes of the first n candidates.
func (s *selection) probeResults(n int) string {
	var out []string
	for _, c := range s.Candidates[:n] {
		text := "no reply at "
		switch {
		case !s.probed[c.Addr]:
			text = "not probed yet at "
		case s.replied[c.Addr]:
			text = "a reply from "
		case !s.badUntil[c.Addr].IsZero():
			text = "a reply but no link at "
		}
		out = append(out, text+c.Text)
	}
	return strings.Join(out, ", ")
}
