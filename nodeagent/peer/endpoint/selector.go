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
	// Improves reports whether this end moves the link to a better candidate while it is up. If
	// both ends use the same address pair, Improves is set at only one end. Two ends with
	// different preferences would move the link back and forth.
	Improves bool
	// CanProbe reports whether the peer replies to endpoint probes while the link is down. If
	// not, candidates are dialled one after the other.
	CanProbe bool
	// NeedsSecondary reports whether a move recreates the tunnel, which interrupts the link. A
	// link that is up is then moved over a secondary tunnel. A link that looks down is not
	// moved while its candidate replies.
	NeedsSecondary bool
}

// LinkState is the observed state of a link.
type LinkState struct {
	Alive        bool           // probes arrive
	ObservedAddr netip.AddrPort // of the peer, with the port as in model.Candidate; invalid = unknown
	// OnSecondary reports whether this end sends over the secondary tunnel. SecondaryOnly
	// reports whether no other tunnel is left.
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
	Resolve bool           // a link is down, so names have to be resolved again
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
		sel := s.selections[r.Name]
		if sel == nil {
			sel = newSelection(r, s.saved[r.Name], now)
			s.selections[r.Name] = sel
		} else {
			sel.update(r, now)
		}
		sel.published = sel.endpoint
		s.queue.Schedule(sel, now)
	}
	for name, sel := range s.selections {
		if !wanted[name] {
			s.queue.Remove(sel)
			delete(s.selections, name)
		}
	}
}

// UpdateLink sets the observed state of a link.
func (s *Selector) UpdateLink(name string, link LinkState, now time.Time) {
	if sel := s.selections[name]; sel != nil {
		sel.updateLink(link, now)
		s.queue.Schedule(sel, now)
	}
}

// OnReply records the reply to a probe.
func (s *Selector) OnReply(p ProbeRequest, now time.Time) {
	if sel := s.selections[p.Name]; sel != nil && sel.isCandidate(p.Addr) {
		sel.onReply(p.Addr, now)
		s.queue.Schedule(sel, now)
	}
}

// Step handles all deadlines up to now.
func (s *Selector) Step(now time.Time) Decision {
	var d Decision
	for sel, ok := s.queue.Next(now); ok; sel, ok = s.queue.Next(now) {
		if addr, probe := sel.step(now); probe {
			d.Probes = append(d.Probes, ProbeRequest{Name: sel.Name, Addr: addr})
		}
		d.Moved = d.Moved || sel.endpoint != sel.published
		d.Resolve = d.Resolve || sel.resolve
		sel.published, sel.resolve = sel.endpoint, false
		s.queue.Schedule(sel, sel.nextStep(now))
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
	for name, sel := range s.selections {
		out[name] = sel.endpoint
	}
	return out
}

// Working returns the candidates that worked, by gateway. The next agent passes them to New.
func (s *Selector) Working() map[string]netip.AddrPort {
	out := map[string]netip.AddrPort{}
	for name, sel := range s.selections {
		switch {
		case sel.usesSecondary():
			out[name] = sel.endpoint.Pending
		case sel.endpoint.Addr.IsValid() && (sel.link.Alive || sel.endpoint.Addr == s.saved[name]):
			out[name] = sel.endpoint.Addr
		}
	}
	return out
}

// ObservedAddrs returns the observed addresses of peers whose links are up.
func (s *Selector) ObservedAddrs() ObservedAddrs {
	out := ObservedAddrs{}
	for name, sel := range s.selections {
		if sel.link.Alive && sel.link.ObservedAddr.IsValid() {
			out[name] = sel.link.ObservedAddr
		}
	}
	return out
}

// Reason describes for users which candidate of a gateway is in use and why. It is empty for an
// unknown gateway.
func (s *Selector) Reason(name string) string {
	sel := s.selections[name]
	if sel == nil {
		return ""
	}
	n := len(sel.Candidates)
	index := sel.candidateIndex(sel.link.ObservedAddr)
	switch {
	case n == 0:
		return "no endpoint: the peer dials in"
	case !sel.link.Alive:
		return "searching: " + sel.probeResults(n)
	case index == n:
		return "the peer dialled in; " + sel.probeResults(n)
	case index == 0:
		return fmt.Sprintf("%s, the first of %d", sel.Candidates[0].Text, n)
	}
	return fmt.Sprintf("%s, number %d of %d: %s", sel.Candidates[index].Text, index+1, n, sel.probeResults(index))
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
