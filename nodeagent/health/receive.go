package health

import (
	"net/netip"
	"time"

	"hawser.dev/hawser/nodeagent/transport"
)

// incoming is a packet from somebody.
type incoming struct {
	from netip.AddrPort
	at   Listen
	*message
}

// Receive takes a message that came to a place, and gives the answers to it.
func (p *Prober) Receive(now time.Time, came transport.Incoming) (out []outgoing) {
	m, ok := heardIn(came.Message)
	if !ok {
		return nil
	}
	in := incoming{came.From, came.At, &m}
	changed := false
	p.mu.Lock()
	if m.reply {
		changed = p.reply(now, in)
	} else {
		out, changed = p.answer(now, in)
	}
	first, any := p.schedule.First()
	early := p.stale || any && first.wake.Before(p.until)
	p.mu.Unlock()
	if early {
		p.wake.Ring()
	}
	if changed {
		p.notify()
	}
	return out
}

// reply takes a reply. Its target is found by the addresses that it came from
// and to, and it must bring the nonce of a probe.
func (p *Prober) reply(now time.Time, m incoming) (changed bool) {
	if p.asked(now, m.message) {
		return false
	}
	t := p.byFlow[flow{at: m.at, from: m.from.Addr()}]
	if t == nil || m.message.from != t.hash || m.to != p.self {
		p.stats.Foreign++
		return false
	}
	genuine := m.poke && t.poke.nonce == m.nonce && m.nonce != 0
	if !m.poke {
		_, genuine = t.accepts(m.message)
	}
	if !genuine {
		return false
	}
	switch {
	case m.push:
	case m.poke && t.poke.again:
		t.poke.nonce = 0
	case m.poke:
		t.poke = poke{nonce: nonce(), again: true, at: now.Add(p.settings.Interval / 4), sent: t.poke.sent}
	default:
		if matched, _ := t.answer(now, m.message, p.settings); matched {
			p.stats.Answered++
		}
	}
	t.prove(now, p.settings)
	if t.tunnel() {
		t.hear(m.word)
		t.theirs = m.token
	} else {
		back := p.mate(now, t, m.rank)
		p.stale = p.stale || back
		fresh, lost := t.heard.take(m.message)
		if lost {
			p.pokeSoon(t, now)
		}
		changed = fresh || back
	}
	changed = p.notice(t, now) || changed
	p.hurry(t, now)
	p.replan(t, now)
	return changed
}

// answer makes the reply to a probe for this gateway. Only who asks over the
// link between the nodes of this cluster is told what it reaches.
func (p *Prober) answer(now time.Time, m incoming) (out []outgoing, changed bool) {
	if p.gateway == "" || m.to != p.self {
		p.stats.Foreign++
		return nil, false
	}
	head := message{
		reply: true, poke: m.poke, sequence: m.sequence, nonce: m.nonce,
		from: m.to, to: m.message.from, word: word{rank: p.condition().rank},
	}
	replies, budget := []message{head}, &p.strangers
	if m.at.Device != "" {
		replies = p.reach.replies(m.generation, head)
		if own := p.nodes[m.from.Addr()]; own != nil {
			budget = own
			changed = p.mates.hear(now, p.settings)
			p.stale = p.stale || changed
			p.remember(m, now)
		}
	} else if t := p.byFlow[flow{at: m.at, from: m.from.Addr()}]; t != nil && t.hash == m.message.from {
		budget = &t.unproven
		if m.token == t.token {
			budget = &t.answers
		}
		changed = p.told(t, m, now)
		replies[0].word, replies[0].token = p.wordFor(t, now), t.token
	}
	for i := range replies {
		if !p.allow(budget, now) {
			break
		}
		p.stats.Replied++
		out = append(out, outgoing{From: m.at, To: m.from, Raw: replies[i].encode()})
	}
	return out, changed
}

// told takes what the other end says in a probe. Anybody can send one with its
// address, so that without the token the other end is asked instead.
func (p *Prober) told(t *target, m incoming, now time.Time) (changed bool) {
	if t.prove(now, p.settings) {
		p.replan(t, now)
	}
	if m.token == t.token {
		t.hear(m.word)
		changed = p.notice(t, now)
		p.hurry(t, now)
	} else if t.other() != m.word && t.poke.nonce == 0 && p.asks.Take(now, askRate) {
		p.pokeSoon(t, now)
	}
	return changed
}

// remember keeps who asked, for a push.
func (p *Prober) remember(m incoming, now time.Time) {
	if m.poke {
		p.askers.told(m.from.Addr(), p.reach.generation)
		return
	}
	p.askers.note(asker{
		to: m.from, at: m.at, sequence: m.sequence, nonce: m.nonce, hash: m.message.from,
		generation: p.reach.generation, seen: now,
	})
}

// replyRate bounds the answers per second and in one burst to one source: a peer at
// the shortest sensible interval stays below it, with all that it is told out of
// turn. All that nobody here knows count as one. So a flood gets through neither to
// others nor to who it pretends to be.
const replyRate = 2000

// allow takes a token of a source's budget, or counts a probe that stays without an
// answer.
func (p *Prober) allow(budget *transport.Bucket, now time.Time) bool {
	if !budget.Take(now, replyRate) {
		p.stats.Limited++
		return false
	}
	return true
}
