package change

import (
	"time"

	"hawser.dev/hawser/nodeagent/wire"
)

// Message is what one end tells the other: what it has, in full.
type Message = wire.Tunnels

// Outgoing is a message on its way over a tunnel.
type Outgoing struct {
	On Tunnel
	Message
}

// Tick gives the messages that are due, and when the next ones are.
func (p *Pair) Tick(now time.Time) ([]Outgoing, time.Time) {
	p.settle(now)
	if !p.talks(now) {
		p.asking = false
		return nil, time.Time{}
	}
	if !p.asking {
		// What was proved some time ago must be proved anew.
		p.asking, p.due = true, now
		for _, h := range p.held {
			h.row, h.missed, h.answered = 0, 0, now
		}
	}
	if p.due.After(now) {
		return nil, p.due
	}
	var out []Outgoing
	for _, h := range p.held {
		if !h.standing {
			continue
		}
		m := p.message()
		m.Ask = true
		h.ask(m.Number, now)
		out = append(out, Outgoing{On: h.Tunnel, Message: m})
	}
	p.due = now.Add(patient)
	if now.Sub(p.event) < news {
		p.due = now.Add(eager)
	}
	return out, p.due
}

// talks reports whether there is anything to find out.
func (p *Pair) talks(now time.Time) bool {
	return p.changes() || now.Before(p.busy)
}

// changes reports whether this end is not where it should be.
func (p *Pair) changes() bool { return p.state != Active || p.use != p.want }

// message says what this end has.
func (p *Pair) message() Message {
	p.number++
	m := Message{Changes: p.changes(), Number: p.number, Read: p.heard.number}
	for _, h := range p.held {
		w := said{
			standing: h.standing, proved: h.proved(), leaving: h.stage == Leaving || h.stage == Released,
			uses: p.carries(h.Tunnel), secondary: p.secondary && h.Tunnel == p.want.other(),
		}
		if h.offered == 0 && (w.proved || w.uses) {
			h.offered = p.number
		}
		m.Each = append(m.Each, wire.Tunnel{
			ID: h.hash(), Standing: w.standing, Proved: w.proved, Carries: w.uses, Leaving: w.leaving, Secondary: w.secondary,
		})
	}
	return m
}

// Receive takes a message that came over a tunnel, and gives the answer; false =
// none. A tunnel that this end does not have has none.
func (p *Pair) Receive(on Tunnel, m Message, now time.Time) (Message, bool) {
	h := p.find(on)
	if h == nil {
		return Message{}, false
	}
	if m.Number > p.heard.number || now.Sub(p.heard.at) > forgetful {
		p.hear(m, now)
	}
	if !m.Ask && h.answer(m.Answers, now) && h.row == proof {
		p.happens(now)
	}
	p.settle(now)
	if !m.Ask {
		return Message{}, false
	}
	if m.Changes {
		if p.busy = now.Add(company); !p.asking {
			p.happens(now)
		}
	}
	answer := p.message()
	answer.Answers = m.Number
	return answer, true
}

// hear takes over what the other end says.
func (p *Pair) hear(m Message, now time.Time) {
	says := make(map[uint64]said, len(m.Each))
	fresh := len(m.Each) != len(p.heard.says)
	p.heard.secondary = false
	for _, t := range m.Each {
		before, known := p.heard.says[t.ID]
		now := said{standing: t.Standing, proved: t.Proved, uses: t.Carries, leaving: t.Leaving, secondary: t.Secondary}
		fresh = fresh || !known || before != now
		says[t.ID] = now
		p.heard.secondary = p.heard.secondary || now.secondary
	}
	p.heard.number, p.heard.read, p.heard.at, p.heard.says = m.Number, m.Read, now, says
	if fresh {
		p.happens(now)
	}
}
