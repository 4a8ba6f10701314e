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

	"hawser.dev/hawser/internal/due"
	"hawser.dev/hawser/nodeagent/model"
)

// Remote is a gateway of another cluster with its candidates.
type Remote struct {
	Name       string            `json:"Name"`       // cluster/gateway
	Candidates []model.Candidate `json:"Candidates"` // best first; none = it dials in
	// Leads says that this end looks for a better place while the link is up. Where
	// both ends send the same way only one does, or two that prefer different ways
	// would take turns.
	Leads bool `json:"Leads"`
	// Asks says that the other end can be asked while the link is down, too. Otherwise
	// candidates are tried with the link itself then, one after the other.
	Asks bool `json:"Asks"`
	// Secondary says that a move ends the link for a moment, as it is made anew. So one that
	// is up goes to a better place over a secondary tunnel, and one that seems to be down
	// stays where it is as long as the other end answers there.
	Secondary bool `json:"Secondary"`
}

// Seen is what is known of a link now.
type Seen struct {
	Alive bool           `json:"Alive"` // probes get through
	At    netip.AddrPort `json:"At"`    // where its packets come from, counted as in model.Candidate; invalid = not known
	// How far it has gone over to a secondary tunnel: this end sends over it, and there is
	// no other any more.
	Begun bool `json:"Begun"`
	Alone bool `json:"Alone"`
}

// Ask is a question to send: does the gateway answer there?
type Ask struct {
	Name string
	Addr netip.AddrPort
}

const (
	// stagger lies between two questions to one gateway: it takes no more than one
	// in 20 ms (INITIATIONS_PER_SECOND of the kernel), and in their order only.
	stagger = 60 * time.Millisecond
	// grace is how long a better candidate may answer later than another one.
	grace          = 300 * time.Millisecond
	graceSecondary = 2 * time.Second // where to move is to end the link
	// yield is how long the end that does not lead waits for the other to find the endpoint.
	yield = 700 * time.Millisecond
	// proof is how long a candidate that was taken may need to carry probes.
	proof = 2 * time.Second
	// spoiled is how long one that answered but carried nothing is left out.
	spoiled = 20 * time.Second
	// blind is how long the first candidate is tried unasked where nobody answers,
	// and then the next; it doubles up to blindMost.
	blind     = 5 * time.Second
	blindMost = time.Minute
	// The first look for better candidates, and those after it.
	firstRetry = 3 * time.Second
	retryEvery = time.Minute
	// steady is how long a link may carry nothing where the other end answers, and be left
	// there, when a move would end it: perhaps this machine or the other one is busy.
	steady = 10 * time.Second
	// secondaryProof is how long a secondary tunnel may need to carry what this end sends.
	secondaryProof = 20 * time.Second
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

// Machine holds the search for each remote gateway.
type Machine struct {
	searches map[string]*search
	queue    due.Queue[*search] // by when there is something to do
	kept     map[string]netip.AddrPort
}

// New makes a machine; kept is what Kept gave in the run before.
func New(kept map[string]netip.AddrPort) *Machine {
	return &Machine{searches: map[string]*search{}, kept: kept}
}

// Set replaces the remotes. Those that stay keep what is known of them.
func (m *Machine) Set(remotes []Remote, now time.Time) {
	wanted := map[string]bool{}
	for _, r := range remotes {
		wanted[r.Name] = true
		s := m.searches[r.Name]
		if s == nil {
			m.searches[r.Name] = begin(r, m.kept[r.Name], now)
			m.queue.Set(m.searches[r.Name], now)
			continue
		}
		if !slices.Equal(s.Candidates, r.Candidates) && !s.seen.Alive {
			s.start(now)
		}
		s.Remote = r
		m.queue.Set(s, now)
		if s.at.Next.IsValid() && s.rank(s.at.Next) == len(r.Candidates) {
			s.at.Next = netip.AddrPort{}
		}
	}
	for name, s := range m.searches {
		if !wanted[name] {
			m.queue.Remove(s)
			delete(m.searches, name)
		}
	}
}

// See notes what is known of a link now.
func (m *Machine) See(name string, seen Seen, now time.Time) {
	s := m.searches[name]
	if s == nil {
		return
	}
	switch {
	case !seen.At.IsValid() && !s.Secondary && s.Asks && s.seen.Alive:
		seen.At = s.seen.At
	case !seen.At.IsValid():
		seen.At = s.at.Addr // where the link was tried is where it is
	}
	m.queue.Set(s, now)
	before := s.seen
	s.seen = seen
	switch {
	case seen.Alive && !before.Alive:
		s.live(now)
	case !seen.Alive && before.Alive:
		s.resolve = true
		s.start(now)
	}
	if seen.Alive && !s.Secondary && s.rank(seen.At) < len(s.Candidates) {
		s.at.Addr = seen.At
	}
}

// Answered notes an answer to a question.
func (m *Machine) Answered(a Ask, now time.Time) {
	if s := m.searches[a.Name]; s != nil && s.rank(a.Addr) < len(s.Candidates) {
		if len(s.answers) == 0 {
			s.first = now
		}
		s.answers[a.Addr] = now
		m.queue.Set(s, now)
	}
}

// Step gives the questions that are due, and when there is something to do next.
func (m *Machine) Step(now time.Time) (asks []Ask, next time.Time) {
	for s, ok := m.queue.Next(now); ok; s, ok = m.queue.Next(now) {
		if addr, ask := s.step(now); ask {
			asks = append(asks, Ask{Name: s.Name, Addr: addr})
		}
		m.queue.Set(s, s.wake(now)) // later than now
	}
	slices.SortFunc(asks, func(a, b Ask) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Addr.Compare(b.Addr))
	})
	return asks, now.Add(m.queue.Wait(now, far))
}

// Idle reports whether there is nothing to do yet.
func (m *Machine) Idle(now time.Time) bool {
	_, due := m.queue.Next(now)
	return !due
}

// Unresolved reports, once, whether names should be looked up again, as a link
// went down or stays so.
func (m *Machine) Unresolved() bool {
	out := false
	for _, s := range m.searches {
		out = out || s.resolve
		s.resolve = false
	}
	return out
}

// RemoteEndpoints gives where each gateway is to be dialled.
func (m *Machine) RemoteEndpoints() map[string]model.RemoteEndpoint {
	out := make(map[string]model.RemoteEndpoint, len(m.searches))
	for name, s := range m.searches {
		out[name] = s.at
	}
	return out
}

// Kept gives the places that worked, for the next run.
func (m *Machine) Kept() map[string]netip.AddrPort {
	out := map[string]netip.AddrPort{}
	for name, s := range m.searches {
		switch {
		case s.at.Next.IsValid() && s.seen.Begun:
			out[name] = s.at.Next
		case s.at.Addr.IsValid() && (s.seen.Alive || s.at.Addr == m.kept[name]):
			out[name] = s.at.Addr
		}
	}
	return out
}

// Places gives from where the links that live come, as far as that is known.
func (m *Machine) Places() map[string]netip.AddrPort {
	out := map[string]netip.AddrPort{}
	for name, s := range m.searches {
		if s.seen.Alive && s.seen.At.IsValid() {
			out[name] = s.seen.At
		}
	}
	return out
}

// Why says, for a person, where a gateway is reached and why there; empty when
// the machine does not know it.
func (m *Machine) Why(name string) string {
	if s := m.searches[name]; s != nil {
		return s.why()
	}
	return ""
}

func (s *search) why() string {
	at := s.rank(s.seen.At)
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
func (s *search) silence(n int) string {
	var out []string
	for _, c := range s.Candidates[:n] {
		text := "no answer at "
		switch {
		case s.asked[c.Addr].IsZero():
			text = "not asked yet at "
		case !s.answers[c.Addr].IsZero():
			text = "an answer from "
		case !s.bad[c.Addr].IsZero():
			text = "an answer but no link at "
		}
		out = append(out, text+c.Text)
	}
	return strings.Join(out, ", ")
}
