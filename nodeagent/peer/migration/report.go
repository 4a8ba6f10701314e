package migration

import (
	"time"

	"hawser.dev/hawser/nodeagent/peer/wire"
)

// Message is what one end tells the other: what it has, in full.
type Message = wire.TunnelReport

// Outgoing is a message on its way over a tunnel.
type Outgoing struct {
	On TunnelID
	Message
}

// Tick gives the messages that are due, and when the next ones are.
func (p *Pair) Tick(now time.Time) ([]Outgoing, time.Time) {
	p.advance(now)
	if !p.talks(now) {
		p.asking = false
		return nil, time.Time{}
	}
	if !p.asking {
		// What was proved some time ago must be proved anew.
		p.asking, p.due = true, now
		for _, h := range p.tunnels {
			h.streak, h.missed, h.answered = 0, 0, now
		}
	}
	if p.due.After(now) {
		return nil, p.due
	}
	var out []Outgoing
	for _, h := range p.tunnels {
		if !h.installed {
			continue
		}
		m := p.message()
		m.WantReply = true
		h.ask(m.Seq, now)
		out = append(out, Outgoing{On: h.TunnelID, Message: m})
	}
	p.due = now.Add(idleInterval)
	if now.Sub(p.event) < activeWindow {
		p.due = now.Add(activeInterval)
	}
	return out, p.due
}

// talks reports whether there is anything to find out.
func (p *Pair) talks(now time.Time) bool {
	return p.changes() || now.Before(p.probeUntil)
}

// changes reports whether this end is not where it should be.
func (p *Pair) changes() bool { return p.state != Active || p.active != p.want }

// message says what this end has.
func (p *Pair) message() Message {
	p.number++
	m := Message{Migrating: p.changes(), Seq: p.number, AckSeq: p.peer.number}
	for _, h := range p.tunnels {
		w := peerTunnel{
			installed: h.installed, verified: h.verified(), withdrawing: h.stage == Withdrawing || h.stage == Withdrawn,
			inUse: p.mayCarry(h.TunnelID), secondary: p.secondary && h.TunnelID == p.want.counterpart(),
		}
		if h.announcedSeq == 0 && (w.verified || w.inUse) {
			h.announcedSeq = p.number
		}
		m.Each = append(m.Each, wire.TunnelState{
			ID: h.hash(), Installed: w.installed, Verified: w.verified, InUse: w.inUse, Withdrawing: w.withdrawing, Secondary: w.secondary,
		})
	}
	return m
}

// Receive takes a message that came over a tunnel, and gives the answer; false =
// none. A tunnel that this end does not have has none.
func (p *Pair) Receive(on TunnelID, m Message, now time.Time) (Message, bool) {
	h := p.find(on)
	if h == nil {
		return Message{}, false
	}
	if m.Seq > p.peer.number || now.Sub(p.peer.at) > seqResetAfter {
		p.mergePeer(m, now)
	}
	if !m.WantReply && h.answer(m.ReplyTo, now) && h.streak == verifyReplies {
		p.wakeNow(now)
	}
	p.advance(now)
	if !m.WantReply {
		return Message{}, false
	}
	if m.Migrating {
		if p.probeUntil = now.Add(reciprocalTime); !p.asking {
			p.wakeNow(now)
		}
	}
	answer := p.message()
	answer.ReplyTo = m.Seq
	return answer, true
}

// mergePeer takes over what the other end says.
func (p *Pair) mergePeer(m Message, now time.Time) {
	says := make(map[uint64]peerTunnel, len(m.Each))
	fresh := len(m.Each) != len(p.peer.says)
	p.peer.secondary = false
	for _, t := range m.Each {
		before, known := p.peer.says[t.ID]
		now := peerTunnel{installed: t.Installed, verified: t.Verified, inUse: t.InUse, withdrawing: t.Withdrawing, secondary: t.Secondary}
		fresh = fresh || !known || before != now
		says[t.ID] = now
		p.peer.secondary = p.peer.secondary || now.secondary
	}
	p.peer.number, p.peer.read, p.peer.at, p.peer.says = m.Seq, m.AckSeq, now, says
	if fresh {
		p.wakeNow(now)
	}
}
