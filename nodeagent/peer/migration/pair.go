// Package migration moves the traffic of two gateways from one tunnel to another without loss of
// packets. The two ends read a new fabric at different times, so for a while they have several
// tunnels. The rules of each end:
//
//   - It receives on every tunnel that it has.
//   - It reports to the peer which tunnels the peer may send over.
//   - It sends over the best tunnel that both ends verified. That is the target if possible.
//     Otherwise it is the tunnel in use while that works.
//   - It withdraws a tunnel that is not its target and that it does not send over. It removes the
//     tunnel once the peer has received that report and does not send over the tunnel.
//
// Pair has these rules for one pair, and is pure. Negotiator exchanges the reports.
package migration

import (
	"slices"
	"time"

	"hawser.dev/hawser/nodeagent/peer/wire"
)

const (
	// retireDelay is the time between the release of a tunnel by both ends and its removal.
	// Packets in flight still arrive.
	retireDelay = 5 * time.Second
	// secondaryAfter is how long the link of an unsynced pair must be down before the pair
	// tries the secondary tunnel.
	secondaryAfter = 30 * time.Second
	// maxTunnels bounds the tunnels of a pair.
	maxTunnels = 6
)

// Pair has the tunnels between this gateway and one peer. It has no clock: the time is an argument.
// Its state must be saved (see Saved) before a message is sent and before the kernel changes. It is
// not safe for concurrent use.
type Pair struct {
	want      TunnelID // tunnel of the fabric
	wantSince time.Time
	tunnels   []*localTunnel // sorted
	active    TunnelID       // tunnel to send over; always one of tunnels

	// kernelActive is the tunnel that the kernel sends over. kernelUnknown reports that it may
	// be any of tunnels, because the previous agent may have stopped during a round.
	kernelActive  TunnelID
	kernelUnknown bool

	// preferSecondary reports whether this end requests the secondary tunnel.
	preferSecondary bool

	// An unsynced pair has no saved state, and its link has not been up yet. The peer may send
	// over a tunnel that occupies the ports of the wanted tunnel. See wantsRendezvous.
	unsynced  bool
	downSince time.Time // zero = the link is up

	seq          uint64 // of the last sent message
	peer         peerReport
	probing      bool
	nextProbe    time.Time
	lastEvent    time.Time
	probeForPeer time.Time // until then this end probes because the peer migrates
}

// localTunnel is a tunnel that this end has or will create.
type localTunnel struct {
	TunnelID
	verification
	installed bool // the kernel had the tunnel after the last round
	// announced reports that a message may have allowed the peer to send over the tunnel.
	announced bool
	// withdrawnSeq is the first message that no longer offers the tunnel. releasedAt is when
	// the peer had received that message and did not send over the tunnel. Both are zero while
	// the tunnel is needed.
	withdrawnSeq uint64
	releasedAt   time.Time
}

// peerReport is the latest report of the peer.
type peerReport struct {
	seq        uint64
	ackSeq     uint64 // the latest message of this end that the peer had received
	receivedAt time.Time
	tunnels    map[uint64]wire.TunnelState // by hash
}

// NewPair returns a pair without saved state. seq must be higher than in earlier processes.
func NewPair(want TunnelID, keys Keys, seq uint64, now time.Time) *Pair {
	return Restore(Saved{}, want, keys, seq, now)
}

// Restore returns a pair with the state that the previous agent saved. It omits tunnels without
// keys.
func Restore(saved Saved, want TunnelID, keys Keys, seq uint64, now time.Time) *Pair {
	p := &Pair{want: want, wantSince: now, seq: seq, lastEvent: now, nextProbe: now}
	if !slices.Contains(saved.Tunnels, saved.Active) || !keys.has(saved.Active) {
		p.unsynced = true
		p.restart(keys)
		p.advance(now)
		return p
	}
	p.active, p.kernelActive, p.kernelUnknown = saved.Active, saved.Active, true
	// The secondary tunnel may have been created for a rendezvous.
	p.unsynced = saved.Active == want && slices.Contains(saved.Tunnels, want.counterpart())
	for _, c := range saved.Tunnels {
		if keys.has(c) {
			p.add(c).announced = true
		}
	}
	p.advance(now)
	return p
}

// restart activates the tunnel that the peer most likely has. It is the wanted tunnel with the
// oldest keys, because the peer may not have newer keys yet.
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
	p.probeNow(now)
	p.advance(now)
}

// SetSecondary sets whether both ends should use the secondary tunnel for now, so that this end can
// recreate the wanted tunnel. The peer follows this request.
func (p *Pair) SetSecondary(prefer bool, now time.Time) {
	if p.preferSecondary != prefer {
		p.preferSecondary = prefer
		p.probeNow(now)
		p.advance(now)
	}
}

// OverSecondary reports whether this end sends over the secondary tunnel, and whether it has no
// other tunnel.
func (p *Pair) OverSecondary() (active, only bool) {
	active = p.active == p.want.counterpart() && !p.kernelBehind()
	return active, active && len(p.tunnels) == 1
}

// SetAlive sets whether packets arrive now. It must be called repeatedly while none arrive.
func (p *Pair) SetAlive(alive bool, now time.Time) {
	switch {
	case alive:
		p.unsynced, p.downSince = false, time.Time{}
	case p.downSince.IsZero():
		p.downSince = now
	}
	p.advance(now)
}

// SetInstalled sets the tunnels in the kernel and the tunnel that the kernel sends over.
func (p *Pair) SetInstalled(tunnels []TunnelID, active TunnelID, now time.Time) {
	changed := p.kernelUnknown || p.kernelActive != active
	p.kernelActive, p.kernelUnknown = active, false
	for _, t := range p.tunnels {
		installed := slices.Contains(tunnels, t.TunnelID)
		changed = changed || installed != t.installed
		t.installed = installed
	}
	if changed {
		p.probeNow(now)
	}
	p.advance(now)
}

// Tunnels returns the tunnels that this end should have, sorted.
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
			p.addIfRoom(target, now)
		}
		if p.wantsRendezvous(now) {
			p.addIfRoom(p.want.counterpart(), now)
		}
	}
	// If the previous switch is not in the kernel yet, the next one waits, unless the tunnel is
	// silent.
	maySwitch := !p.kernelBehind() || p.find(p.active).isSilent(now)
	if best := p.bestTunnel(now); best != p.active && maySwitch {
		p.active = best
		p.probeNow(now)
	}
	p.retire(now)
}

// addIfRoom adds a tunnel if there is room for it.
func (p *Pair) addIfRoom(c TunnelID, now time.Time) {
	if p.find(c) == nil && p.hasRoom(c) {
		p.add(c)
		p.probeNow(now)
	}
}

// hasRoom reports whether this end has a tunnel or can create it in addition to its tunnels.
func (p *Pair) hasRoom(c TunnelID) bool {
	return p.find(c) != nil ||
		len(p.tunnels) < maxTunnels && !slices.ContainsFunc(p.tunnels, func(t *localTunnel) bool { return t.conflictsWith(c) })
}

// target returns the tunnel to move to. It is the wanted tunnel, or its counterpart if the
// secondary tunnel is preferred or another tunnel has the ports of the wanted tunnel. It returns
// false if there is no room for either.
func (p *Pair) target() (TunnelID, bool) {
	candidates := []TunnelID{p.want, p.want.counterpart()}
	if p.prefersSecondary() {
		slices.Reverse(candidates)
	}
	for _, c := range candidates {
		if p.hasRoom(c) {
			return c, true
		}
	}
	return TunnelID{}, false
}

// prefersSecondary reports whether either end requests the secondary tunnel. During a migration to
// another tunnel it is false.
func (p *Pair) prefersSecondary() bool {
	secondary := p.want.counterpart()
	return (p.active == p.want || p.active == secondary) && (p.preferSecondary || p.peer.prefersSecondary(secondary))
}

// prefersSecondary reports whether the peer requests a secondary tunnel. It computes the hash,
// which is expensive, only if the peer requests one.
func (r *peerReport) prefersSecondary(secondary TunnelID) bool {
	for id, t := range r.tunnels {
		if t.Secondary && id == secondary.hash() {
			return true
		}
	}
	return false
}

// wantsRendezvous reports whether an unsynced pair needs the secondary tunnel to reach the peer.
// The peer may have a previous tunnel at the port of the wanted tunnel, so it cannot create the
// wanted tunnel. Drivers with fixed ports have no such conflict.
func (p *Pair) wantsRendezvous(now time.Time) bool {
	return p.unsynced && p.active == p.want && p.want.Ports != [2]int{} && !p.downSince.IsZero() && now.Sub(p.downSince) >= secondaryAfter
}

// bestTunnel returns the tunnel to send over.
func (p *Pair) bestTunnel(now time.Time) TunnelID {
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
		// The ends send over different tunnels, and neither end can move to its target.
		// Both select the tunnel that sorts first.
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

// retire withdraws tunnels that are not needed. It removes the tunnels that the peer released.
func (p *Pair) retire(now time.Time) {
	target, _ := p.target()
	p.tunnels = slices.DeleteFunc(p.tunnels, func(t *localTunnel) bool { return p.retireTunnel(t, target, now) })
}

// retireTunnel reports whether this end may remove a tunnel now. It withdraws the tunnel if it is
// not needed.
func (p *Pair) retireTunnel(t *localTunnel, target TunnelID, now time.Time) bool {
	switch {
	case t.TunnelID == target || p.maySend(t.TunnelID) || t.TunnelID == p.want.counterpart() && p.wantsRendezvous(now):
		t.withdrawnSeq, t.releasedAt = 0, time.Time{}
	case !t.announced:
		return true // no message allowed the peer to send over it
	case t.withdrawnSeq == 0:
		t.withdrawnSeq = p.seq + 1
		p.probeNow(now)
	case p.peer.tunnels[t.hash()].InUse || p.peer.ackSeq < t.withdrawnSeq || p.peer.ackSeq > p.seq:
		t.releasedAt = time.Time{}
	case t.releasedAt.IsZero():
		t.releasedAt = now
	default:
		return now.Sub(t.releasedAt) >= retireDelay
	}
	return false
}

// maySend reports whether this end may send over a tunnel.
func (p *Pair) maySend(c TunnelID) bool {
	return p.kernelUnknown || c == p.active || c == p.kernelActive
}

// kernelBehind reports whether the kernel may send over another tunnel than the active tunnel.
func (p *Pair) kernelBehind() bool { return p.kernelUnknown || p.kernelActive != p.active }

// isMigrating reports whether the pair has or uses another tunnel than the wanted one.
func (p *Pair) isMigrating() bool {
	return p.active != p.want || len(p.tunnels) > 1 || p.kernelBehind()
}

// probeNow makes this end probe at once, and frequently for activeWindow.
func (p *Pair) probeNow(now time.Time) { p.lastEvent, p.nextProbe = now, now }

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

// Progress is the state of a migration, for users.
type Progress struct {
	Active TunnelID
	Target TunnelID  // of the fabric
	Since  time.Time // when Target became the tunnel of the fabric
	Reason string    // why Target is not active yet; empty = it is active
}

// Progress returns the state of the migration.
func (p *Pair) Progress(now time.Time) Progress {
	out := Progress{Active: p.active, Target: p.want, Since: p.wantSince}
	if p.active != p.want {
		out.Reason = p.waitReason(now)
	}
	return out
}

// waitReason returns why the target is not active yet.
func (p *Pair) waitReason(now time.Time) string {
	target, ok := p.target()
	t, peer := p.find(target), p.peer.tunnels[target.hash()]
	switch {
	case p.prefersSecondary():
		return "moving to another endpoint"
	case !ok || target == p.active || t == nil:
		return "waiting until the previous tunnel is removed"
	case !t.installed:
		return "not created yet"
	case p.peer.receivedAt.IsZero() || now.Sub(p.peer.receivedAt) > seqResetAfter:
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
