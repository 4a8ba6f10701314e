package health

import "time"

// offPathTime is for how long the answer to a probe off the path counts.
const offPathTime = 3 * time.Second

// offPath is a probe that went over another link than its link.
type offPath struct {
	to, from uint64 // hash of the peer; a number in place of the own name
	sent     time.Time
	answered func()
}

// OffPath makes a probe of a gateway that somebody else sends, over another link than the
// link to it takes. It says nothing of the link, here or at the other end, which
// answers by its own way. answered is called at most once, under a lock: it must
// neither block nor call the prober.
func (p *Prober) OffPath(to Peer, answered func()) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	for number, a := range p.offPaths {
		if now.Sub(a.sent) > offPathTime {
			delete(p.offPaths, number)
		}
	}
	m := message{nonce: nonce(), from: nonce(), to: to.hash()}
	p.offPaths[m.nonce] = offPath{to: m.to, from: m.from, sent: now, answered: answered}
	return m.encode()
}

// asked takes a reply to a probe off the path, and reports whether it is one.
func (p *Prober) asked(now time.Time, m *message) bool {
	a, known := p.offPaths[m.nonce]
	if !known || m.from != a.to || m.to != a.from {
		return false
	}
	delete(p.offPaths, m.nonce)
	if now.Sub(a.sent) <= offPathTime {
		a.answered()
	}
	return true
}
