// Package endpoint finds out where each remote gateway is reached. A gateway has
// several candidates in order of preference; the machine asks at all of them while
// the link to it is down, takes the best that answers, and asks now and then at
// better ones while the link is up, which does not disturb it. The machine is
// pure: it knows the time as an argument only, and what it decides is for others
// to carry out.
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

// Remote is a gateway of another cluster with its candidates.
type Remote struct {
	Name       string            `json:"Name"`       // cluster/gateway
	Candidates []model.Candidate `json:"Candidates"` // best first; none = it dials in
	// Improves says that this end looks for a better place while the link is up. Where
	// both ends send the same way only one does, or two that prefer different ways
	// would take turns.
	Improves bool `json:"Leads"`
	// CanProbe says that the other end can be asked while the link is down, too. Otherwise
	// candidates are tried with the link itself then, one after the other.
	CanProbe bool `json:"Asks"`
	// NeedsSecondary says that a move ends the link for a moment, as it is made anew. So one that
	// is up goes to a better place over a secondary tunnel, and one that seems to be down
	// stays where it is as long as the other end answers there.
	NeedsSecondary bool `json:"Secondary"`
}

// LinkState is what is known of a link now.
type LinkState struct {
	Alive        bool           `json:"Alive"` // probes get through
	ObservedAddr netip.AddrPort `json:"At"`    // where its packets come from, counted as in model.Candidate; invalid = not known
	// How far it has gone over to a secondary tunnel: this end sends over it, and there is
	// no other any more.
	OnSecondary   bool `json:"Begun"`
	SecondaryOnly bool `json:"Alone"`
}

// ProbeRequest is a question to send: does the gateway answer there?
type ProbeRequest struct {
	Name string
	Addr netip.AddrPort
}

const (
	// probeSpacing lies between two questions to one gateway: it takes no more than one
	// in 20 ms (INITIATIONS_PER_SECOND of the kernel), and in their order only.
	probeSpacing = 60 * time.Millisecond
	// betterWait is how long a better candidate may answer later than another one.
	betterWait     = 300 * time.Millisecond
	graceSecondary = 2 * time.Second // where to move is to end the link
	// followerDelay is how long the end that does not lead waits for the other to find the endpoint.
	followerDelay = 700 * time.Millisecond
	// trialPeriod is how long a candidate that was taken may need to carry probes.
	trialPeriod = 2 * time.Second
	// badTTL is how long one that answered but carried nothing is left out.
	badTTL = 20 * time.Second
	// blindInterval is how long the first candidate is tried unasked where nobody answers,
	// and then the next; it doubles up to blindMost.
	blindInterval = 5 * time.Second
	blindMost     = time.Minute
	// The first look for better candidates, and those after it.
	firstRetry = 3 * time.Second
	retryEvery = time.Minute
	// minStay is how long a link may carry nothing where the other end answers, and be left
	// there, when a move would end it: perhaps this machine or the other one is busy.
	minStay = 10 * time.Second
	// secondaryTrialPeriod is how long a secondary tunnel may need to carry what this end sends.
	secondaryTrialPeriod = 20 * time.Second
	// far is when there is nothing to do.
	far = time.Hour
)

// pause gives the time between two rounds of questions: quick at first, as a
// gateway that moved is found again so.
func pause(round int) time.Duration {
	switch {
	case round < 10:
		return 500 * time.Millisecond
	case round < 30:
		return 2 * time.Second
	}
	return 8 * time.Second
}

// Selector holds the search for each remote gateway.
type Selector struct {
	searches map[string]*selection
	queue    timerqueue.Queue[*selection] // by when there is something to do
	kept     map[string]netip.AddrPort
}

// New makes a machine; kept is what Kept gave in the run before.
func New(kept map[string]netip.AddrPort) *Selector {
	return &Selector{searches: map[string]*selection{}, kept: kept}
}

// Set replaces the remotes. Those that stay keep what is known of them.
func (m *Selector) Set(remotes []Remote, now time.Time) {
	wanted := map[string]bool{}
	for _, r := range remotes {
		wanted[r.Name] = true
		s := m.searches[r.Name]
		if s == nil {
			m.searches[r.Name] = newSelection(r, m.kept[r.Name], now)
			m.queue.Schedule(m.searches[r.Name], now)
			continue
		}
		if !slices.Equal(s.Candidates, r.Candidates) && !s.seen.Alive {
			s.onLinkDown(now)
		}
		s.Remote = r
		m.queue.Schedule(s, now)
		if s.current.Pending.IsValid() && s.rank(s.current.Pending) == len(r.Candidates) {
			s.current.Pending = netip.AddrPort{}
		}
	}
	for name, s := range m.searches {
		if !wanted[name] {
			m.queue.Remove(s)
			delete(m.searches, name)
		}
	}
}

// UpdateLink notes what is known of a link now.
func (m *Selector) UpdateLink(name string, seen LinkState, now time.Time) {
	s := m.searches[name]
	if s == nil {
		return
	}
	switch {
	case !seen.ObservedAddr.IsValid() && !s.NeedsSecondary && s.CanProbe && s.seen.Alive:
		seen.ObservedAddr = s.seen.ObservedAddr
	case !seen.ObservedAddr.IsValid():
		seen.ObservedAddr = s.current.Addr // where the link was tried is where it is
	}
	m.queue.Schedule(s, now)
	before := s.seen
	s.seen = seen
	switch {
	case seen.Alive && !before.Alive:
		s.onLinkUp(now)
	case !seen.Alive && before.Alive:
		s.resolve = true
		s.onLinkDown(now)
	}
	if seen.Alive && !s.NeedsSecondary && s.rank(seen.ObservedAddr) < len(s.Candidates) {
		s.current.Addr = seen.ObservedAddr
	}
}

// OnReply notes an answer to a question.
func (m *Selector) OnReply(a ProbeRequest, now time.Time) {
	if s := m.searches[a.Name]; s != nil && s.rank(a.Addr) < len(s.Candidates) {
		if len(s.answers) == 0 {
			s.first = now
		}
		s.answers[a.Addr] = now
		m.queue.Schedule(s, now)
	}
}

// Step gives the questions that are due, and when there is something to do next.
func (m *Selector) Step(now time.Time) (asks []ProbeRequest, next time.Time) {
	for s, ok := m.queue.Next(now); ok; s, ok = m.queue.Next(now) {
		if addr, ask := s.step(now); ask {
			asks = append(asks, ProbeRequest{Name: s.Name, Addr: addr})
		}
		m.queue.Schedule(s, s.nextWake(now)) // later than now
	}
	slices.SortFunc(asks, func(a, b ProbeRequest) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Addr.Compare(b.Addr))
	})
	return asks, now.Add(m.queue.UntilNext(now, far))
}

// Idle reports whether there is nothing to do yet.
func (m *Selector) Idle(now time.Time) bool {
	_, due := m.queue.Next(now)
	return !due
}

// ConsumeResolveRequest reports, once, whether names should be looked up again, as a link
// went down or stays so.
func (m *Selector) ConsumeResolveRequest() bool {
	out := false
	for _, s := range m.searches {
		out = out || s.resolve
		s.resolve = false
	}
	return out
}

// RemoteEndpoints gives where each gateway is to be dialled.
func (m *Selector) RemoteEndpoints() map[string]model.RemoteEndpoint {
	out := make(map[string]model.RemoteEndpoint, len(m.searches))
	for name, s := range m.searches {
		out[name] = s.current
	}
	return out
}

// Working gives the places that worked, for the next run.
func (m *Selector) Working() map[string]netip.AddrPort {
	out := map[string]netip.AddrPort{}
	for name, s := range m.searches {
		switch {
		case s.current.Pending.IsValid() && s.seen.OnSecondary:
			out[name] = s.current.Pending
		case s.current.Addr.IsValid() && (s.seen.Alive || s.current.Addr == m.kept[name]):
			out[name] = s.current.Addr
		}
	}
	return out
}

// Places gives from where the links that live come, as far as that is known.
func (m *Selector) Places() map[string]netip.AddrPort {
	out := map[string]netip.AddrPort{}
	for name, s := range m.searches {
		if s.seen.Alive && s.seen.ObservedAddr.IsValid() {
			out[name] = s.seen.ObservedAddr
		}
	}
	return out
}

// Why says, for a person, where a gateway is reached and why there; empty when
// the machine does not know it.
func (m *Selector) Why(name string) string {
	if s := m.searches[name]; s != nil {
		return s.why()
	}
	return ""
}

func (s *selection) why() string {
	at := s.rank(s.seen.ObservedAddr)
	switch {
	case len(s.Candidates) == 0:
		return "no endpoint: it dials in"
	case !s.seen.Alive:
		return "looking: " + s.silence(len(s.Candidates))
	case at == len(s.Candidates):
		return "it dialled in; " + s.silence(len(s.Candidates))
	case at == 0:
		return s.Candidates[0].Text + ", the first of " + fmt.Sprint(len(s.Candidates))
	}
	return fmt.Sprintf("%s, number %d of %d: %s", s.Candidates[at].Text, at+1, len(s.Candidates), s.silence(at))
}

// silence says of the first n candidates what is known of them.
func (s *selection) silence(n int) string {
	var out []string
	for _, c := range s.Candidates[:n] {
		text := "no answer at "
		switch {
		case s.asked[c.Addr].IsZero():
			text = "not asked yet at "
		case !s.answers[c.Addr].IsZero():
			text = "an answer from "
		case !s.badUntil[c.Addr].IsZero():
			text = "an answer but no link at "
		}
		out = append(out, text+c.Text)
	}
	return strings.Join(out, ", ")
}
