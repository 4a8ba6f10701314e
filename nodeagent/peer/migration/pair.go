package migration

import (
	"slices"
	"time"
)

// Pair is the state of the tunnels between this gateway and one other. It knows
// the time only as an argument. Whatever it says in a message must be kept (see
// Kept) before the message leaves.
type Pair struct {
	want          TunnelID
	since         time.Time // of want
	secondary     bool      // this end wants both to go over the secondary tunnel
	state         State
	tunnels       []*localTunnel
	active        TunnelID
	kernelActive  TunnelID // what the kernel sends over, and
	kernelUnknown bool     // that it may be any that is held, as the run before was in the middle of something
	stageTarget   TunnelID // what next gave when stages were decided

	// A pair that begins without history may be at another tunnel than the other end, which
	// cannot come to it: it still holds the one before in its place. Such a pair is lost until
	// its link was up once, and calls over the secondary tunnel, too, when it was down for long.
	unsynced        bool
	down            time.Time // the link is, since then; zero = it is not
	tryingSecondary bool

	table  []transition[State, *Pair]
	stages []transition[Stage, pairTunnel]

	number uint64 // of the last message
	peer   struct {
		number    uint64 // of the last message from the other end
		read      uint64 // the number of the last of this end that it read
		at        time.Time
		says      map[uint64]peerTunnel
		secondary bool // it wants both to go over its secondary tunnel
	}
	probeUntil time.Time // until when this end asks for the other's sake
	event      time.Time // the last time that something happened
	due        time.Time // of the next asks
	asking     bool
}

// NewPair begins without history. Numbers of messages must be higher in a later run.
func NewPair(want TunnelID, keys Keys, number uint64, now time.Time) *Pair {
	p := &Pair{
		want: want, since: now, number: number, event: now, due: now, state: Retiring, table: pairTransitions(), stages: tunnelTransitions(), unsynced: true,
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
	p.active = want
	p.kernelActive = p.active
	p.ensure(p.active)
	p.ensure(p.want)
}

// Restore begins where the run before ended, as far as there are keys.
func Restore(kept Saved, want TunnelID, keys Keys, number uint64, now time.Time) *Pair {
	p := NewPair(want, keys, number, now)
	if !slices.Contains(kept.Tunnels, kept.Use) || !keys.open(kept.Use) {
		return p
	}
	p.tunnels, p.active, p.kernelActive, p.kernelUnknown = nil, kept.Use, kept.Use, true
	p.unsynced = kept.Use == want && slices.Contains(kept.Tunnels, want.counterpart())
	for _, c := range kept.Tunnels {
		if keys.open(c) {
			p.ensure(c).stage = Announced
		}
	}
	p.advance(now)
	return p
}

// Saved gives what a later run has to know.
func (p *Pair) Saved() Saved { return Saved{Tunnels: p.Tunnels(), Use: p.active} }

// Want says which tunnel the pair should have in the end, and which ones it can
// have. One whose keys are gone ends at once, whether or not it is used.
func (p *Pair) Want(c TunnelID, keys Keys, now time.Time) {
	before := len(p.tunnels)
	p.tunnels = slices.DeleteFunc(p.tunnels, func(h *localTunnel) bool { return !keys.open(h.TunnelID) })
	lost := p.find(p.active) == nil
	if c == p.want && !lost && len(p.tunnels) == before {
		return
	}
	if c != p.want {
		p.want, p.since = c, now
	}
	if lost {
		p.begin(keys)
		p.state = Retiring
	}
	p.wakeNow(now)
	p.advance(now)
}

// Secondary says whether the pair should go over the other one of its two possible
// tunnels for a while, so that this end may make the wanted one anew. The other end
// goes along.
func (p *Pair) Secondary(secondary bool, now time.Time) {
	if p.secondary != secondary {
		p.secondary = secondary
		p.wakeNow(now)
		p.advance(now)
	}
}

// OverSecondary says how far that is: begun when this end sends over the secondary tunnel,
// and alone when there is no other any more.
func (p *Pair) OverSecondary() (begun, alone bool) {
	begun = p.active == p.want.counterpart() && p.kernelActive == p.active
	return begun, begun && len(p.tunnels) == 1
}

// Alive says whether packets get through now.
func (p *Pair) Alive(alive bool, now time.Time) {
	switch {
	case alive:
		p.unsynced, p.tryingSecondary, p.down = false, false, time.Time{}
	case p.down.IsZero():
		p.down = now
	}
	p.advance(now)
}

// wantsSecondary reports whether the pair should go over the secondary tunnel now. It does not
// while it is on its way to another one.
func (p *Pair) wantsSecondary() bool {
	other := p.want.counterpart()
	if p.active != p.want && p.active != other {
		return false
	}
	return p.secondary || p.peer.secondary && p.peer.says[other.hash()].secondary
}

// Applied says which tunnels the kernel has now, and which one it sends over.
func (p *Pair) Applied(tunnels []TunnelID, use TunnelID, now time.Time) {
	changed := p.kernelActive != use || p.kernelUnknown
	p.kernelActive, p.kernelUnknown = use, false
	for _, h := range p.tunnels {
		standing := slices.Contains(tunnels, h.TunnelID)
		changed = changed || standing != h.installed
		h.installed = standing
	}
	if changed {
		p.wakeNow(now)
	}
	p.advance(now)
}

// Tunnels gives what this end should have, and take packets on.
func (p *Pair) Tunnels() []TunnelID {
	out := make([]TunnelID, len(p.tunnels))
	for i, h := range p.tunnels {
		out[i] = h.TunnelID
	}
	slices.SortFunc(out, compareTunnels)
	return out
}

// wakeNow makes both ends talk at once.
func (p *Pair) wakeNow(now time.Time) { p.event, p.due = now, now }

func (p *Pair) find(c TunnelID) *localTunnel {
	for _, h := range p.tunnels {
		if h.TunnelID == c {
			return h
		}
	}
	return nil
}

func (p *Pair) ensure(c TunnelID) *localTunnel {
	if h := p.find(c); h != nil {
		return h
	}
	h := &localTunnel{TunnelID: c}
	p.tunnels = append(p.tunnels, h)
	return h
}

// target is the tunnel to go to now: the one that is wanted, or on the way to it the
// same one at other ports, when what there is has its ports.
func (p *Pair) target() TunnelID {
	order := []TunnelID{p.want, p.want.counterpart()}
	if p.wantsSecondary() {
		slices.Reverse(order)
	}
	for _, c := range order {
		if p.find(c) != nil || len(p.tunnels) < most && !slices.ContainsFunc(p.tunnels, func(h *localTunnel) bool { return h.conflictsWith(c) }) {
			return c
		}
	}
	return p.active
}

// advance takes every transition whose time has come.
func (p *Pair) advance(now time.Time) {
	p.advanceTunnels(now)
	for ok := true; ok; {
		p.state, ok = fire(p.table, p.state, p, now)
	}
	p.advanceTunnels(now)
}

// advanceTunnels does the same for the tunnels.
func (p *Pair) advanceTunnels(now time.Time) {
	p.stageTarget = p.target()
	for _, h := range p.tunnels {
		for ok := true; ok && h.stage != Removed; {
			h.stage, ok = fire(p.stages, h.stage, pairTunnel{h, p}, now)
		}
	}
	p.tunnels = slices.DeleteFunc(p.tunnels, func(h *localTunnel) bool { return h.stage == Removed })
}

func (p *Pair) kernelBehind(time.Time) bool  { return p.kernelUnknown || p.kernelActive != p.active }
func (p *Pair) kernelInSync(time.Time) bool  { return !p.kernelUnknown && p.kernelActive == p.active }
func (p *Pair) arrived(time.Time) bool       { return p.target() == p.active }
func (p *Pair) differs(time.Time) bool       { return p.target() != p.active }
func (p *Pair) single(time.Time) bool        { return len(p.tunnels) == 1 }
func (p *Pair) targetMissing(time.Time) bool { return p.find(p.target()) == nil }

// shouldTrySecondary reports whether the other end, of which nothing was ever known, may be at the
// secondary tunnel. Without ports a pair has no place for one at will.
func (p *Pair) shouldTrySecondary(now time.Time) bool {
	return p.unsynced && !p.tryingSecondary && p.want.Ports != [2]int{} && p.active == p.want && !p.down.IsZero() && now.Sub(p.down) >= secondaryAfter
}

func (p *Pair) trySecondary(now time.Time) {
	p.tryingSecondary = true
	p.ensure(p.want.counterpart())
	p.wakeNow(now)
}

func (p *Pair) agreed(now time.Time) bool {
	return p.target() != p.active && p.isUsable(p.find(p.target()), now)
}

func (p *Pair) failed(now time.Time) bool {
	return p.find(p.active).isLost(now) && p.usableTunnel(now) != nil
}

func (p *Pair) make(now time.Time) {
	p.ensure(p.target())
	p.wakeNow(now)
}

func (p *Pair) useNext(now time.Time) { p.switchTo(p.target(), now) }

func (p *Pair) useOther(now time.Time) { p.switchTo(p.usableTunnel(now).TunnelID, now) }

func (p *Pair) switchTo(c TunnelID, now time.Time) {
	p.active = c
	p.wakeNow(now)
}

// endsDiverged reports whether the ends send over two tunnels while the one that both want does
// not work: then it is the first of the two for both.
func (p *Pair) endsDiverged(now time.Time) bool { return p.peerTunnel(now) != nil }

func (p *Pair) joinPeer(now time.Time) { p.switchTo(p.peerTunnel(now).TunnelID, now) }

// peerTunnel gives the tunnel to join the other end on; nil = none.
func (p *Pair) peerTunnel(now time.Time) *localTunnel {
	if p.peer.says[p.active.hash()].inUse {
		return nil
	}
	for _, h := range p.tunnels {
		if p.peer.says[h.hash()].inUse && compareTunnels(h.TunnelID, p.active) < 0 && p.isUsable(h, now) {
			return h
		}
	}
	return nil
}

// usableTunnel gives a good tunnel, the next one if that is; nil = there is none.
func (p *Pair) usableTunnel(now time.Time) *localTunnel {
	if h := p.find(p.target()); h != nil && p.isUsable(h, now) {
		return h
	}
	for _, h := range p.tunnels {
		if p.isUsable(h, now) {
			return h
		}
	}
	return nil
}

// isUsable reports whether both ends proved a tunnel, and the other one keeps it.
func (p *Pair) isUsable(h *localTunnel, now time.Time) bool {
	says := p.peer.says[h.hash()]
	return h.verified() && !h.isLost(now) && says.installed && says.verified && !says.withdrawing
}

// needed reports whether this end has a use for a tunnel.
func (t pairTunnel) needed(time.Time) bool {
	return t.TunnelID == t.pair.stageTarget || t.pair.mayCarry(t.TunnelID) || t.pair.tryingSecondary && t.TunnelID == t.pair.want.counterpart()
}

// mayCarry reports whether packets of this end may be on a tunnel now.
func (p *Pair) mayCarry(c TunnelID) bool {
	return p.kernelUnknown || c == p.active || c == p.kernelActive
}

func (t pairTunnel) unneeded(now time.Time) bool { return !t.needed(now) }

func (t pairTunnel) isAnnounced(time.Time) bool { return t.announcedSeq > 0 }

// withdraw says so from the next message on.
func (t pairTunnel) withdraw(now time.Time) {
	t.withdrawnSeq = t.pair.number + 1
	t.pair.wakeNow(now)
}

func (t pairTunnel) cancelWithdraw(time.Time) { t.withdrawnSeq = 0 }

// peerReleased reports whether the other end does not use a tunnel, and will not begin to: it has
// read that this end leaves it.
func (t pairTunnel) peerReleased(now time.Time) bool {
	read := t.pair.peer.read
	return !t.peerUses(now) && read >= t.withdrawnSeq && read <= t.pair.number
}

func (t pairTunnel) release(now time.Time) { t.released = now }

func (t pairTunnel) peerUses(time.Time) bool { return t.pair.peer.says[t.hash()].inUse }

func (t pairTunnel) expired(now time.Time) bool { return now.Sub(t.released) >= retireDelay }

// Progress says how far a change is.
func (p *Pair) Progress(now time.Time) Progress {
	out := Progress{Active: p.active, Target: p.want, Since: p.since}
	if p.active != p.want {
		out.Why = p.why(p.target(), now)
	}
	return out
}

func (p *Pair) why(next TunnelID, now time.Time) string {
	h := p.find(next)
	says, known := peerTunnel{}, false
	if h != nil {
		says, known = p.peer.says[h.hash()]
	}
	switch {
	case p.wantsSecondary():
		return "another endpoint is taken"
	case next == p.active || h == nil:
		return "waits for the tunnel before to end"
	case !h.installed:
		return "is not up here yet"
	case h.streak > 0 && !h.isLost(now) && !says.verified:
		return "the other end gets no answer over it"
	case known && says.withdrawing:
		return "the other end leaves it"
	case known && says.installed && h.streak == 0:
		return "no answer over it"
	case known && says.installed:
		return "is being proved"
	case p.peer.at.IsZero() || now.Sub(p.peer.at) > seqResetAfter:
		return "the other end does not say what it has"
	}
	return "the other end does not have it yet"
}
