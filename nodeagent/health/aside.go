package health

import "time"

// asideTime is for how long the answer to a probe aside counts.
const asideTime = 3 * time.Second

// aside is a probe that went another way than its link.
type aside struct {
	to, from uint64 // hash of the peer; a number in place of the own name
	sent     time.Time
	answered func()
}

// Aside makes a probe of a gateway that somebody else sends, another way than the
// link to it takes. It says nothing of the link, here or at the other end, which
// answers by its own way. answered is called at most once, under a lock: it must
// neither block nor call the prober.
func (p *Prober) Aside(to Peer, answered func()) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	for number, a := range p.asides {
		if now.Sub(a.sent) > asideTime {
			delete(p.asides, number)
		}
	}
	m := message{nonce: nonce(), from: nonce(), to: to.hash()}
	p.asides[m.nonce] = aside{to: m.to, from: m.from, sent: now, answered: answered}
	return m.encode()
}

// asked takes a reply to a probe aside, and reports whether it is one.
func (p *Prober) asked(now time.Time, m *message) bool {
	a, known := p.asides[m.nonce]
	if !known || m.from != a.to || m.to != a.from {
		return false
	}
	delete(p.asides, m.nonce)
	if now.Sub(a.sent) <= asideTime {
		a.answered()
	}
	return true
}
