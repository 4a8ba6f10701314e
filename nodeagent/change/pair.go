package change

import (
	"slices"
	"time"
)

// Pair is the state of the cables between this gateway and one other. It knows
// the time only as an argument. Whatever it says in a message must be kept (see
// Kept) before the message leaves.
type Pair struct {
	want    Cable
	since   time.Time // of want
	aside   bool
	held    []*hold
	use     Cable
	applied Cable // what the kernel sends over

	number uint64 // of the last message
	heard  struct {
		number uint64 // of the last message from the other end
		at     time.Time
		says   map[uint64]said
		wished bool // it wishes some cable
	}
	busy   time.Time // until when this end asks for the other's sake
	event  time.Time // the last time that something happened
	due    time.Time // of the next asks
	asking bool
}

// NewPair begins without history. Numbers of messages must be higher in a later run.
func NewPair(want Cable, keys Keys, number uint64, now time.Time) *Pair {
	p := &Pair{want: want, since: now, number: number, event: now, due: now}
	p.begin(keys)
	return p
}

// begin takes the oldest cable that the other end may have, and holds the one that
// is wanted.
func (p *Pair) begin(keys Keys) {
	p.use = keys.first(p.want)
	p.applied = p.use
	p.hold(p.use)
	p.hold(p.want)
}

// Restore begins where the run before ended, as far as there are keys.
func Restore(kept Kept, want Cable, keys Keys, number uint64, now time.Time) *Pair {
	p := NewPair(want, keys, number, now)
	if !slices.Contains(kept.Cables, kept.Use) || !keys.open(kept.Use) {
		return p
	}
	p.held, p.use, p.applied = nil, kept.Use, kept.Use
	for _, c := range kept.Cables {
		if keys.open(c) {
			p.hold(c).told = true
		}
	}
	p.settle(now)
	return p
}

// Keep gives what a later run has to know.
func (p *Pair) Keep() Kept { return Kept{Cables: p.Cables(), Use: p.use} }

// Want says which cable the pair should have in the end, and which ones it can
// have. One whose keys are gone ends at once, whether or not it is used.
func (p *Pair) Want(c Cable, keys Keys, now time.Time) {
	before := len(p.held)
	p.held = slices.DeleteFunc(p.held, func(h *hold) bool { return !keys.open(h.Cable) })
	lost := p.find(p.use) == nil
	if c == p.want && !lost && len(p.held) == before {
		return
	}
	if c != p.want {
		p.want, p.since = c, now
	}
	if lost {
		p.begin(keys)
	}
	p.happens(now)
	p.settle(now)
}

// Aside says whether the pair should go over the other one of its two possible
// cables for a while, so that this end may make the wanted one anew. The other end
// goes along.
func (p *Pair) Aside(aside bool, now time.Time) {
	if p.aside != aside {
		p.aside = aside
		p.happens(now)
		p.settle(now)
	}
}

// Apart says how far that is: begun when this end sends over the other cable, and
// done when there is nothing else any more.
func (p *Pair) Apart() (begun, done bool) {
	begun = p.use == p.want.other() && p.applied == p.use
	return begun, begun && len(p.held) == 1
}

// steps reports whether the pair should go aside now. It does not while it is on its
// way to another cable.
func (p *Pair) steps() bool {
	other := p.want.other()
	if p.use != p.want && p.use != other {
		return false
	}
	return p.aside || p.heard.wished && p.heard.says[other.hash()].wished
}

// Applied says which cables the kernel has now, and which one it sends over.
func (p *Pair) Applied(cables []Cable, use Cable, now time.Time) {
	changed := p.applied != use
	p.applied = use
	for _, h := range p.held {
		standing := slices.Contains(cables, h.Cable)
		changed = changed || standing != h.standing
		h.standing = standing
	}
	if changed {
		p.happens(now)
	}
	p.settle(now)
}

// Cables gives what this end should have, and take packets on.
func (p *Pair) Cables() []Cable {
	out := make([]Cable, len(p.held))
	for i, h := range p.held {
		out[i] = h.Cable
	}
	slices.SortFunc(out, compareCables)
	return out
}

// Use gives the cable to send over.
func (p *Pair) Use() Cable { return p.use }

// happens makes both ends talk at once.
func (p *Pair) happens(now time.Time) { p.event, p.due = now, now }

func (p *Pair) find(c Cable) *hold {
	for _, h := range p.held {
		if h.Cable == c {
			return h
		}
	}
	return nil
}

func (p *Pair) hold(c Cable) *hold {
	if h := p.find(c); h != nil {
		return h
	}
	h := &hold{Cable: c}
	p.held = append(p.held, h)
	return h
}

// next is the cable to go to now: the one that is wanted, or on the way to it the
// same one at other ports, when what there is has its ports.
func (p *Pair) next() Cable {
	ways := []Cable{p.want, p.want.other()}
	if p.steps() {
		slices.Reverse(ways)
	}
	for _, c := range ways {
		if p.find(c) != nil || len(p.held) < most && !slices.ContainsFunc(p.held, func(h *hold) bool { return h.clashes(c) }) {
			return c
		}
	}
	return p.use
}

// settle decides what follows from all that is known.
func (p *Pair) settle(now time.Time) {
	p.forget(p.next())
	next := p.next()
	if p.find(next) == nil {
		p.happens(now)
	}
	p.hold(next)
	p.choose(next, now)
	p.leave(next, now)
}

// forget drops what the other end cannot have begun to use.
func (p *Pair) forget(next Cable) {
	p.held = slices.DeleteFunc(p.held, func(h *hold) bool { return !h.told && !p.needs(h, next) })
}

// needs reports whether this end has a use for a cable.
func (p *Pair) needs(h *hold, next Cable) bool {
	return h.Cable == next || h.Cable == p.use || h.Cable == p.applied
}

// choose takes the cable to go to once it is good, and any good one when the one
// in use is dead.
func (p *Pair) choose(next Cable, now time.Time) {
	switch have := p.find(p.use); {
	case p.use == next && !have.lost(now):
	case p.good(p.find(next), now):
		p.take(next, now)
	case have.lost(now):
		for _, h := range p.held {
			if p.good(h, now) {
				p.take(h.Cable, now)
				return
			}
		}
	}
}

func (p *Pair) take(c Cable, now time.Time) {
	if p.use == c {
		return
	}
	p.use = c
	p.happens(now)
}

// good reports whether both ends proved a cable, and the other one keeps it.
func (p *Pair) good(h *hold, now time.Time) bool {
	says := p.heard.says[h.hash()]
	return h.proved() && !h.lost(now) && says.standing && says.proved && !says.leaving
}

// leave begins to give up what nobody wants, and ends it.
func (p *Pair) leave(next Cable, now time.Time) {
	for _, h := range p.held {
		if p.needs(h, next) {
			h.leaving, h.left = 0, time.Time{}
			continue
		}
		if h.leaving == 0 {
			// The number of the first message that says so.
			h.leaving = p.number + 1
			p.happens(now)
		}
	}
	p.held = slices.DeleteFunc(p.held, func(h *hold) bool { return !h.left.IsZero() && now.Sub(h.left) >= linger })
}

// released notes the cables that the other end does not use, and will not begin
// to: it has read that this end leaves them.
func (p *Pair) released(read uint64, now time.Time) {
	for _, h := range p.held {
		switch uses := p.heard.says[h.hash()].uses; {
		case h.leaving == 0 || uses:
			h.left = time.Time{}
		case read >= h.leaving && read <= p.number && h.left.IsZero():
			h.left = now
		}
	}
}

// Progress says how far a change is.
func (p *Pair) Progress(now time.Time) Progress {
	out := Progress{Use: p.use, Next: p.want, Since: p.since}
	if p.use != p.want {
		out.Why = p.why(p.next(), now)
	}
	return out
}

func (p *Pair) why(next Cable, now time.Time) string {
	h := p.find(next)
	says, known := said{}, false
	if h != nil {
		says, known = p.heard.says[h.hash()]
	}
	switch {
	case p.steps():
		return "another endpoint is taken"
	case next == p.use || h == nil:
		return "waits for the cable before to end"
	case !h.standing:
		return "is not up here yet"
	case h.row > 0 && !h.lost(now) && !says.proved:
		return "the other end gets no answer over it"
	case known && says.leaving:
		return "the other end leaves it"
	case known && says.standing && h.row == 0:
		return "no answer over it"
	case known && says.standing:
		return "is being proved"
	case p.heard.at.IsZero() || now.Sub(p.heard.at) > forgetful:
		return "the other end does not say what it has"
	}
	return "the other end does not have it yet"
}
