// Package migration moves the traffic of two gateways from one tunnel to another
// without losing a packet. Both ends learn at different times which tunnel the fabric
// wants, so for a while they have several. The rules of each end:
//
//   - It receives on every tunnel that it has.
//   - It reports to the peer which tunnels the peer may send over.
//   - It sends over the best tunnel that both ends verified: the target if possible,
//     otherwise the one in use as long as that works.
//   - It withdraws a tunnel that it neither wants nor sends over, and removes it once
//     the peer has read that and does not send over it.
//
// Pair has these rules for one pair, and is pure. Negotiator exchanges the reports.
package migration

import (
	"slices"
	"time"

	"hawser.dev/hawser/nodeagent/peer/wire"
)

const (
	// retireDelay is the time between the release of a tunnel by both ends and its
	// removal, for packets in flight.
	retireDelay = 5 * time.Second
	// secondaryAfter is the time after which an unsynced pair with a link that is down
	// tries the secondary tunnel.
	secondaryAfter = 30 * time.Second
	// maxTunnels bounds the tunnels of a pair.
	maxTunnels = 6
)

// Pair has the tunnels between this gateway and one peer. It has no clock: each method
// takes the time. It must be saved (see Saved) before a message leaves and before the
// kernel changes. It is not safe for concurrent use.
type Pair struct {
	want      TunnelID // of the fabric
	wantSince time.Time
	tunnels   []*localTunnel // sorted
	active    TunnelID       // to send over; always one of tunnels

	// kernelActive is what the kernel sends over. kernelUnknown says that it may be any
	// of tunnels, because the previous agent may have stopped in the middle of a round.
	kernelActive  TunnelID
	kernelUnknown bool

	// preferSecondary reports whether this end requests the secondary tunnel.
	preferSecondary bool

	// An unsynced pair has no history and its link has not been up yet. The peer may send
	// over a tunnel that occupies the ports of the wanted one. See wantsRendezvous.
	unsynced  bool
	downSince time.Time // zero = the link is up

	seq          uint64 // of the last own message
	peer         peerReport
	probing      bool
	nextProbe    time.Time
	lastEvent    time.Time
	probeForPeer time.Time // the peer migrates: this end probes, too, until then
}

// localTunnel is a tunnel that this end has or is about to create.
type localTunnel struct {
	TunnelID
	verification
	installed bool // the last round left it in the kernel
	// announced says that a message may have allowed the peer to send over it.
	announced bool
	// withdrawnSeq is the first message that does not offer the tunnel any longer, and
	// releasedAt the time when the peer had read it and did not send over the tunnel.
	// Both are zero while the tunnel is needed.
	withdrawnSeq uint64
	releasedAt   time.Time
}

// peerReport is the latest report of the peer.
type peerReport struct {
	seq     uint64
	ackSeq  uint64 // the latest message of this end that the peer had read
	at      time.Time
	tunnels map[uint64]wire.TunnelState // by hash
}

// NewPair starts without history. seq must be higher than in earlier processes.
func NewPair(want TunnelID, keys Keys, seq uint64, now time.Time) *Pair {
	return Restore(Saved{}, want, keys, seq, now)
}

// Restore continues where the previous agent stopped, as far as there are keys.
func Restore(saved Saved, want TunnelID, keys Keys, seq uint64, now time.Time) *Pair {
	p := &Pair{want: want, wantSince: now, seq: seq, lastEvent: now, nextProbe: now}
	if !slices.Contains(saved.Tunnels, saved.Active) || !keys.has(saved.Active) {
		p.unsynced = true
		p.restart(keys)
		p.advance(now)
		return p
	}
	p.active, p.kernelActive, p.kernelUnknown = saved.Active, saved.Active, true
	// The secondary tunnel next to the wanted one may be left over from a rendezvous.
	p.unsynced = saved.Active == want && slices.Contains(saved.Tunnels, want.counterpart())
	for _, c := range saved.Tunnels {
		if keys.has(c) {
			p.add(c).announced = true
		}
	}
	p.advance(now)
	return p
}

// restart activates the tunnel that the peer most likely has: the wanted one with the
// oldest keys, as the peer may not have newer keys yet.
func (p *Pair) restart(keys Keys) {
	p.active = p.want
	if epochs := keys[p.want.Driver]; p.want.Epoch != 0 && len(epochs) > 0 {
		p.active.Epoch = epochs[0]
	}
	p.kernelActive = p.active
	p.tunnels = slices.DeleteFunc(p.tunnels, func(t *localTunnel) bool { return t.conflictsWith(p.active) })
	if p.find(p.active) == nil {
		p.add(p.active)
	}
}

// Saved returns the state for the next agent.
func (p *Pair) Saved() Saved { return Saved{Tunnels: p.Tunnels(), Active: p.active} }

// SetWant sets the tunnel of the fabric and the usable keys. A tunnel without keys is removed at
// once, even if it is active.
func (p *Pair) SetWant(want TunnelID, keys Keys, now time.Time) {
	before := len(p.tunnels)
	p.tunnels = slices.DeleteFunc(p.tunnels, func(t *localTunnel) bool { return !keys.has(t.TunnelID) })
	if want == p.want && len(p.tunnels) == before {
		return
	}
	if want != p.want {
		p.want, p.wantSince = want, now
	}
	if p.find(p.active) == nil {
		p.restart(keys)
	}
	p.wakeNow(now)
	p.advance(now)
}

// SetSecondary sets whether both ends should use the secondary tunnel for now, so that
// this end may create the wanted one again. The peer follows.
func (p *Pair) SetSecondary(prefer bool, now time.Time) {
	if p.preferSecondary != prefer {
		p.preferSecondary = prefer
		p.wakeNow(now)
		p.advance(now)
	}
}

// OverSecondary reports whether this end sends over the secondary tunnel, and whether
// it has no other tunnel.
func (p *Pair) OverSecondary() (active, only bool) {
	active = p.active == p.want.counterpart() && !p.kernelBehind()
	return active, active && len(p.tunnels) == 1
}

// SetAlive sets whether packets arrive now. It must be called repeatedly while they do not.
func (p *Pair) SetAlive(alive bool, now time.Time) {
	switch {
	case alive:
		p.unsynced, p.downSince = false, time.Time{}
	case p.downSince.IsZero():
		p.downSince = now
	}
	p.advance(now)
}

// SetInstalled sets which tunnels the kernel has, and which one it sends over.
func (p *Pair) SetInstalled(tunnels []TunnelID, active TunnelID, now time.Time) {
	changed := p.kernelUnknown || p.kernelActive != active
	p.kernelActive, p.kernelUnknown = active, false
	for _, t := range p.tunnels {
		installed := slices.Contains(tunnels, t.TunnelID)
		changed = changed || installed != t.installed
		t.installed = installed
	}
	if changed {
		p.wakeNow(now)
	}
	p.advance(now)
}

// Tunnels returns the tunnels that this end should have and receive on, sorted.
func (p *Pair) Tunnels() []TunnelID {
	out := make([]TunnelID, len(p.tunnels))
	for i, t := range p.tunnels {
		out[i] = t.TunnelID
	}
	return out
}

// advance applies the rules of the package comment.
func (p *Pair) advance(now time.Time) {
	p.retire(now)
	if !p.kernelBehind() {
		if target, ok := p.target(); ok {
			p.create(target, now)
		}
		if p.wantsRendezvous(now) {
			p.create(p.want.counterpart(), now)
		}
	}
	// A second switch has to wait for the kernel, unless the tunnel does not work.
	if best := p.best(now); best != p.active && (!p.kernelBehind() || p.find(p.active).isSilent(now)) {
		p.active = best
		p.wakeNow(now)
	}
	p.retire(now)
}

// create adds a tunnel if there is room for it.
func (p *Pair) create(c TunnelID, now time.Time) {
	if p.find(c) == nil && p.hasRoom(c) {
		p.add(c)
		p.wakeNow(now)
	}
}

// hasRoom reports whether this end has a tunnel or can create it next to the others.
func (p *Pair) hasRoom(c TunnelID) bool {
	return p.find(c) != nil ||
		len(p.tunnels) < maxTunnels && !slices.ContainsFunc(p.tunnels, func(t *localTunnel) bool { return t.conflictsWith(c) })
}

// target returns the tunnel to move to: the wanted one, or its counterpart if the
// secondary tunnel is preferred or an existing tunnel has the ports of the wanted one.
// It reports false if there is no room for either.
func (p *Pair) target() (TunnelID, bool) {
	order := []TunnelID{p.want, p.want.counterpart()}
	if p.prefersSecondary() {
		slices.Reverse(order)
	}
	for _, c := range order {
		if p.hasRoom(c) {
			return c, true
		}
	}
	return TunnelID{}, false
}

// prefersSecondary reports whether an end requests the secondary tunnel. It does not
// count during a migration to another tunnel.
func (p *Pair) prefersSecondary() bool {
	secondary := p.want.counterpart()
	return (p.active == p.want || p.active == secondary) && (p.preferSecondary || p.peer.prefersSecondary(secondary))
}

// prefersSecondary reports whether the peer requests a secondary tunnel. The hash is expensive, and
// few peers request one.
func (r *peerReport) prefersSecondary(secondary TunnelID) bool {
	for id, t := range r.tunnels {
		if t.Secondary && id == secondary.hash() {
			return true
		}
	}
	return false
}

// wantsRendezvous reports whether an unsynced pair needs the secondary tunnel to reach
// the peer. The peer may still have the tunnel before the wanted one at the same port,
// and so it cannot create the wanted one. A driver with fixed ports has no such port.
func (p *Pair) wantsRendezvous(now time.Time) bool {
	return p.unsynced && p.active == p.want && p.want.Ports != [2]int{} && !p.downSince.IsZero() && now.Sub(p.downSince) >= secondaryAfter
}

// best returns the tunnel to send over.
func (p *Pair) best(now time.Time) TunnelID {
	target, ok := p.target()
	if t := p.find(target); t != nil && p.isUsable(t, now) {
		return target
	}
	switch {
	case p.find(p.active).isSilent(now):
		for _, t := range p.tunnels {
			if p.isUsable(t, now) {
				return t.TunnelID
			}
		}
	case !(ok && target == p.active) && !p.peer.tunnels[p.active.hash()].InUse:
		// The ends send over different tunnels, and neither can move to its target. Both choose
		// the tunnel that sorts first.
		for _, t := range p.tunnels {
			if compareTunnels(t.TunnelID, p.active) < 0 && p.peer.tunnels[t.hash()].InUse && p.isUsable(t, now) {
				return t.TunnelID
			}
		}
	}
	return p.active
}

// isUsable reports whether both ends verified a tunnel and the peer offers it.
func (p *Pair) isUsable(t *localTunnel, now time.Time) bool {
	peer := p.peer.tunnels[t.hash()]
	return t.installed && t.isVerified(now) && peer.Available && peer.Verified
}

// retire withdraws tunnels that are not needed, and removes the ones that the peer
// released.
func (p *Pair) retire(now time.Time) {
	target, _ := p.target()
	p.tunnels = slices.DeleteFunc(p.tunnels, func(t *localTunnel) bool { return p.retireTunnel(t, target, now) })
}

// retireTunnel reports whether this end may remove a tunnel now. It withdraws a tunnel
// that is not needed.
func (p *Pair) retireTunnel(t *localTunnel, target TunnelID, now time.Time) bool {
	switch {
	case t.TunnelID == target || p.maySend(t.TunnelID) || t.TunnelID == p.want.counterpart() && p.wantsRendezvous(now):
		t.withdrawnSeq, t.releasedAt = 0, time.Time{}
	case !t.announced:
		return true // the peer was never allowed to send over it
	case t.withdrawnSeq == 0:
		t.withdrawnSeq = p.seq + 1
		p.wakeNow(now)
	case p.peer.tunnels[t.hash()].InUse || p.peer.ackSeq < t.withdrawnSeq || p.peer.ackSeq > p.seq:
		t.releasedAt = time.Time{}
	case t.releasedAt.IsZero():
		t.releasedAt = now
	default:
		return now.Sub(t.releasedAt) >= retireDelay
	}
	return false
}

// maySend reports whether packets of this end may be on a tunnel.
func (p *Pair) maySend(c TunnelID) bool {
	return p.kernelUnknown || c == p.active || c == p.kernelActive
}

// kernelBehind reports whether the kernel may send over another tunnel than the active
// one.
func (p *Pair) kernelBehind() bool { return p.kernelUnknown || p.kernelActive != p.active }

// isMigrating reports whether the pair is not yet at the wanted tunnel alone.
func (p *Pair) isMigrating() bool {
	return p.active != p.want || len(p.tunnels) > 1 || p.kernelBehind()
}

// wakeNow makes this end probe at once, and frequently for a while.
func (p *Pair) wakeNow(now time.Time) { p.lastEvent, p.nextProbe = now, now }

func (p *Pair) find(c TunnelID) *localTunnel {
	for _, t := range p.tunnels {
		if t.TunnelID == c {
			return t
		}
	}
	return nil
}

func (p *Pair) add(c TunnelID) *localTunnel {
	t := &localTunnel{TunnelID: c}
	p.tunnels = append(p.tunnels, t)
	slices.SortFunc(p.tunnels, func(a, b *localTunnel) int { return compareTunnels(a.TunnelID, b.TunnelID) })
	return t
}

// Progress is the state of a migration, for people.
type Progress struct {
	Active TunnelID
	Target TunnelID  // of the fabric
	Since  time.Time // when the fabric first wanted Target
	Reason string    // what the migration waits for; empty = Target is active
}

// Progress returns the state of the migration.
func (p *Pair) Progress(now time.Time) Progress {
	out := Progress{Active: p.active, Target: p.want, Since: p.wantSince}
	if p.active != p.want {
		out.Reason = p.waitsFor(now)
	}
	return out
}

// waitsFor returns why the target is not active yet.
func (p *Pair) waitsFor(now time.Time) string {
	target, ok := p.target()
	t, peer := p.find(target), p.peer.tunnels[target.hash()]
	switch {
	case p.prefersSecondary():
		return "moving to another endpoint"
	case !ok || target == p.active || t == nil:
		return "waiting until the previous tunnel is removed"
	case !t.installed:
		return "not created yet"
	case p.peer.at.IsZero() || now.Sub(p.peer.at) > seqResetAfter:
		return "the peer does not report its tunnels"
	case t.replies > 0 && !t.isSilent(now) && !peer.Verified:
		return "the peer gets no reply over it"
	case !peer.Available && peer.Verified:
		return "the peer withdraws it"
	case !peer.Available:
		return "the peer has not created it yet"
	case t.replies == 0:
		return "no reply over it"
	}
	return "verifying"
}
