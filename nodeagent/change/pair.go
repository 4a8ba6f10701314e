package change

import (
	"slices"
	"time"
)

// Pair is the state of the tunnels between this gateway and one other. It knows
// the time only as an argument. Whatever it says in a message must be kept (see
// Kept) before the message leaves.
type Pair struct {
	want      Tunnel
	since     time.Time // of want
	secondary bool      // this end wants both to go over the secondary tunnel
	state     State
	held      []*hold
	use       Tunnel
	applied   Tunnel // what the kernel sends over, and
	unknown   bool   // that it may be any that is held, as the run before was in the middle of something
	goal      Tunnel // what next gave when stages were decided

	// A pair that begins without history may be at another tunnel than the other end, which
	// cannot come to it: it still holds the one before in its place. Such a pair is lost until
	// its link was up once, and calls over the secondary tunnel, too, when it was down for long.
	lost  bool
	down  time.Time // the link is, since then; zero = it is not
	calls bool

	table  []row[State, *Pair]
	stages []row[Stage, holding]

	number uint64 // of the last message
	heard  struct {
		number    uint64 // of the last message from the other end
		read      uint64 // the number of the last of this end that it read
		at        time.Time
		says      map[uint64]said
		secondary bool // it wants both to go over its secondary tunnel
	}
	busy   time.Time // until when this end asks for the other's sake
	event  time.Time // the last time that something happened
	due    time.Time // of the next asks
	asking bool
}

// NewPair begins without history. Numbers of messages must be higher in a later run.
func NewPair(want Tunnel, keys Keys, number uint64, now time.Time) *Pair {
	p := &Pair{
		want: want, since: now, number: number, event: now, due: now, state: Retiring, table: transitions(), stages: stages(), lost: true,
	}
	p.begin(keys)
	return p
}

// begin takes the oldest tunnel that the other end may have, and holds the one that
// is wanted.
func (p *Pair) begin(keys Keys) {
	// Without history a pair begins with the oldest tunnel: the other end may know no newer epoch
	// yet.
	want := p.want
	if all := keys[want.Driver]; want.Epoch != 0 && len(all) > 0 {
		want.Epoch = all[0]
	}
	p.use = want
	p.applied = p.use
	p.hold(p.use)
	p.hold(p.want)
}

// Restore begins where the run before ended, as far as there are keys.
func Restore(kept Kept, want Tunnel, keys Keys, number uint64, now time.Time) *Pair {
	p := NewPair(want, keys, number, now)
	if !slices.Contains(kept.Tunnels, kept.Use) || !keys.open(kept.Use) {
		return p
	}
	p.held, p.use, p.applied, p.unknown = nil, kept.Use, kept.Use, true
	p.lost = kept.Use == want && slices.Contains(kept.Tunnels, want.other())
	for _, c := range kept.Tunnels {
		if keys.open(c) {
			p.hold(c).stage = Offered
		}
	}
	p.settle(now)
	return p
}

// Keep gives what a later run has to know.
func (p *Pair) Keep() Kept { return Kept{Tunnels: p.Tunnels(), Use: p.use} }

// Want says which tunnel the pair should have in the end, and which ones it can
// have. One whose keys are gone ends at once, whether or not it is used.
func (p *Pair) Want(c Tunnel, keys Keys, now time.Time) {
	before := len(p.held)
	p.held = slices.DeleteFunc(p.held, func(h *hold) bool { return !keys.open(h.Tunnel) })
	lost := p.find(p.use) == nil
	if c == p.want && !lost && len(p.held) == before {
		return
	}
	if c != p.want {
		p.want, p.since = c, now
	}
	if lost {
		p.begin(keys)
		p.state = Retiring
	}
	p.happens(now)
	p.settle(now)
}

// Secondary says whether the pair should go over the other one of its two possible
// tunnels for a while, so that this end may make the wanted one anew. The other end
// goes along.
func (p *Pair) Secondary(secondary bool, now time.Time) {
	if p.secondary != secondary {
		p.secondary = secondary
		p.happens(now)
		p.settle(now)
	}
}

// OverSecondary says how far that is: begun when this end sends over the secondary tunnel,
// and alone when there is no other any more.
func (p *Pair) OverSecondary() (begun, alone bool) {
	begun = p.use == p.want.other() && p.applied == p.use
	return begun, begun && len(p.held) == 1
}

// Alive says whether packets get through now.
func (p *Pair) Alive(alive bool, now time.Time) {
	switch {
	case alive:
		p.lost, p.calls, p.down = false, false, time.Time{}
	case p.down.IsZero():
		p.down = now
	}
	p.settle(now)
}

// detours reports whether the pair should go over the secondary tunnel now. It does not
// while it is on its way to another one.
func (p *Pair) detours() bool {
	other := p.want.other()
	if p.use != p.want && p.use != other {
		return false
	}
	return p.secondary || p.heard.secondary && p.heard.says[other.hash()].secondary
}

// Applied says which tunnels the kernel has now, and which one it sends over.
func (p *Pair) Applied(tunnels []Tunnel, use Tunnel, now time.Time) {
	changed := p.applied != use || p.unknown
	p.applied, p.unknown = use, false
	for _, h := range p.held {
		standing := slices.Contains(tunnels, h.Tunnel)
		changed = changed || standing != h.standing
		h.standing = standing
	}
	if changed {
		p.happens(now)
	}
	p.settle(now)
}

// Tunnels gives what this end should have, and take packets on.
func (p *Pair) Tunnels() []Tunnel {
	out := make([]Tunnel, len(p.held))
	for i, h := range p.held {
		out[i] = h.Tunnel
	}
	slices.SortFunc(out, compareTunnels)
	return out
}

// happens makes both ends talk at once.
func (p *Pair) happens(now time.Time) { p.event, p.due = now, now }

func (p *Pair) find(c Tunnel) *hold {
	for _, h := range p.held {
		if h.Tunnel == c {
			return h
		}
	}
	return nil
}

func (p *Pair) hold(c Tunnel) *hold {
	if h := p.find(c); h != nil {
		return h
	}
	h := &hold{Tunnel: c}
	p.held = append(p.held, h)
	return h
}

// next is the tunnel to go to now: the one that is wanted, or on the way to it the
// same one at other ports, when what there is has its ports.
func (p *Pair) next() Tunnel {
	order := []Tunnel{p.want, p.want.other()}
	if p.detours() {
		slices.Reverse(order)
	}
	for _, c := range order {
		if p.find(c) != nil || len(p.held) < most && !slices.ContainsFunc(p.held, func(h *hold) bool { return h.clashes(c) }) {
			return c
		}
	}
	return p.use
}

// settle takes every transition whose time has come.
func (p *Pair) settle(now time.Time) {
	p.restage(now)
	for ok := true; ok; {
		p.state, ok = step(p.table, p.state, p, now)
	}
	p.restage(now)
}

// restage does the same for the tunnels.
func (p *Pair) restage(now time.Time) {
	p.goal = p.next()
	for _, h := range p.held {
		for ok := true; ok && h.stage != Gone; {
			h.stage, ok = step(p.stages, h.stage, holding{h, p}, now)
		}
	}
	p.held = slices.DeleteFunc(p.held, func(h *hold) bool { return h.stage == Gone })
}

func (p *Pair) behind(time.Time) bool   { return p.unknown || p.applied != p.use }
func (p *Pair) caughtUp(time.Time) bool { return !p.unknown && p.applied == p.use }
func (p *Pair) arrived(time.Time) bool  { return p.next() == p.use }
func (p *Pair) differs(time.Time) bool  { return p.next() != p.use }
func (p *Pair) single(time.Time) bool   { return len(p.held) == 1 }
func (p *Pair) lacks(time.Time) bool    { return p.find(p.next()) == nil }

// silent reports whether the other end, of which nothing was ever known, may be at the
// secondary tunnel. Without ports a pair has no place for one at will.
func (p *Pair) silent(now time.Time) bool {
	return p.lost && !p.calls && p.want.Ports != [2]int{} && p.use == p.want && !p.down.IsZero() && now.Sub(p.down) >= patience
}

func (p *Pair) call(now time.Time) {
	p.calls = true
	p.hold(p.want.other())
	p.happens(now)
}

func (p *Pair) agreed(now time.Time) bool { return p.next() != p.use && p.good(p.find(p.next()), now) }

func (p *Pair) failed(now time.Time) bool { return p.find(p.use).lost(now) && p.other(now) != nil }

func (p *Pair) make(now time.Time) {
	p.hold(p.next())
	p.happens(now)
}

func (p *Pair) useNext(now time.Time) { p.take(p.next(), now) }

func (p *Pair) useOther(now time.Time) { p.take(p.other(now).Tunnel, now) }

func (p *Pair) take(c Tunnel, now time.Time) {
	p.use = c
	p.happens(now)
}

// parted reports whether the ends send over two tunnels while the one that both want does
// not work: then it is the first of the two for both.
func (p *Pair) parted(now time.Time) bool { return p.theirs(now) != nil }

func (p *Pair) join(now time.Time) { p.take(p.theirs(now).Tunnel, now) }

// theirs gives the tunnel to join the other end on; nil = none.
func (p *Pair) theirs(now time.Time) *hold {
	if p.heard.says[p.use.hash()].uses {
		return nil
	}
	for _, h := range p.held {
		if p.heard.says[h.hash()].uses && compareTunnels(h.Tunnel, p.use) < 0 && p.good(h, now) {
			return h
		}
	}
	return nil
}

// other gives a good tunnel, the next one if that is; nil = there is none.
func (p *Pair) other(now time.Time) *hold {
	if h := p.find(p.next()); h != nil && p.good(h, now) {
		return h
	}
	for _, h := range p.held {
		if p.good(h, now) {
			return h
		}
	}
	return nil
}

// good reports whether both ends proved a tunnel, and the other one keeps it.
func (p *Pair) good(h *hold, now time.Time) bool {
	says := p.heard.says[h.hash()]
	return h.proved() && !h.lost(now) && says.standing && says.proved && !says.leaving
}

// needed reports whether this end has a use for a tunnel.
func (t holding) needed(time.Time) bool {
	return t.Tunnel == t.pair.goal || t.pair.carries(t.Tunnel) || t.pair.calls && t.Tunnel == t.pair.want.other()
}

// carries reports whether packets of this end may be on a tunnel now.
func (p *Pair) carries(c Tunnel) bool { return p.unknown || c == p.use || c == p.applied }

func (t holding) unneeded(now time.Time) bool { return !t.needed(now) }

func (t holding) told(time.Time) bool { return t.offered > 0 }

// leave says so from the next message on.
func (t holding) leave(now time.Time) {
	t.leaving = t.pair.number + 1
	t.pair.happens(now)
}

func (t holding) stay(time.Time) { t.leaving = 0 }

// free reports whether the other end does not use a tunnel, and will not begin to: it has
// read that this end leaves it.
func (t holding) free(now time.Time) bool {
	read := t.pair.heard.read
	return !t.taken(now) && read >= t.leaving && read <= t.pair.number
}

func (t holding) release(now time.Time) { t.released = now }

func (t holding) taken(time.Time) bool { return t.pair.heard.says[t.hash()].uses }

func (t holding) expired(now time.Time) bool { return now.Sub(t.released) >= linger }

// Progress says how far a change is.
func (p *Pair) Progress(now time.Time) Progress {
	out := Progress{Use: p.use, Next: p.want, Since: p.since}
	if p.use != p.want {
		out.Why = p.why(p.next(), now)
	}
	return out
}

func (p *Pair) why(next Tunnel, now time.Time) string {
	h := p.find(next)
	says, known := said{}, false
	if h != nil {
		says, known = p.heard.says[h.hash()]
	}
	switch {
	case p.detours():
		return "another endpoint is taken"
	case next == p.use || h == nil:
		return "waits for the tunnel before to end"
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
