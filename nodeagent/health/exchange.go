package health

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"
)

// monotonic is the origin of the timestamps in probes; only differences on one
// host mean anything.
func (p *Prober) monotonic(now time.Time) int64 { return int64(now.Sub(p.origin)) }

// places gives every socket that listening and probing need. Unless forced, it
// gives nil when they are the same as before.
func (p *Prober) places(force bool) map[Listen]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.moved && !force {
		return nil
	}
	p.moved = false
	places := make(map[Listen]bool, len(p.listen)+2)
	for _, place := range p.listen {
		places[place] = true
	}
	for t := range p.targets {
		places[Listen{Addr: t.Source, Device: t.Device}] = true
	}
	return places
}

// takeDue makes the probes that are due, or will be within a fiftieth of the
// interval, so that many targets do not mean a wake-up each, and says how long
// until the next one.
func (p *Prober) takeDue(now time.Time) ([]outgoing, time.Duration) {
	p.mu.Lock()
	var out []outgoing
	changed := false
	horizon := now.Add(p.settings.Interval / 50)
	for t := p.schedule.first(); t != nil && !t.due.After(horizon); t = p.schedule.first() {
		nonce := rand.Uint64()
		changed = t.tick(now, nonce, p.settings.Misses) || changed
		m := message{
			kind: kindProbe, sequence: t.sequence, nonce: nonce, sent: p.monotonic(now),
			from: p.self(), to: t.Peer.hash(), generation: t.generation,
		}
		out = append(out, outgoing{from: Listen{Addr: t.Source, Device: t.Device}, to: t.Addr, raw: m.encode()})
		t.due = p.next(t.due, now)
		p.schedule.moved(t)
	}
	if changed {
		p.updateReach()
	}
	wait := reopen
	if t := p.schedule.first(); t != nil {
		wait = min(wait, t.due.Sub(now))
	}
	p.mu.Unlock()
	if changed {
		p.notify()
	}
	return out, wait
}

// next gives the due time after due: the interval with a jitter of a tenth, so
// that targets that began together drift apart. After a pause (a suspended
// machine) missed probes are not made up for.
func (p *Prober) next(due, now time.Time) time.Time {
	interval := max(p.settings.Interval, time.Millisecond)
	due = due.Add(interval - interval/20 + rand.N(interval/10))
	if due.Before(now) {
		return now.Add(interval)
	}
	return due
}

func (p *Prober) self() uint64 {
	return Peer{Cluster: p.config.Cluster, Gateway: p.gateway}.hash()
}

// updateReach makes the list for the nodes of this cluster from the own probes
// of remote gateways. The mutex is held.
func (p *Prober) updateReach() {
	var hashes []uint64
	for _, t := range p.targets {
		if t.Peer.Cluster != p.config.Cluster && (Link{State: t.state, Initial: t.initial}).Alive() {
			hashes = append(hashes, t.Peer.hash())
		}
	}
	p.reach = newReachList(hashes)
}

// read handles packets until the socket is closed.
func (p *Prober) read(c *net.UDPConn, place Listen) {
	buffer := make([]byte, maxPacket+1)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Such as ECONNREFUSED from an ICMP error, or ENETDOWN: pass, but never spin.
			time.Sleep(time.Millisecond)
			continue
		}
		now := time.Now()
		m, err := decode(buffer[:n])
		if err != nil {
			p.count(func(s *Stats) { s.Malformed++ })
			continue
		}
		peer := netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		if m.kind == kindReply {
			p.handleReply(now, place, peer.Addr(), &m)
			continue
		}
		p.handleProbe(now, c, incoming{peer, place, &m})
	}
}

// handleReply finds the target by the addresses that the reply came from and to.
func (p *Prober) handleReply(now time.Time, place Listen, from netip.Addr, m *message) {
	p.mu.Lock()
	t := p.byWay[way{at: place, from: from}]
	if t == nil || m.from != t.Peer.hash() || m.to != p.self() {
		p.stats.Foreign++
		p.mu.Unlock()
		return
	}
	matched, changed := t.answer(now, m, p.settings.Misses)
	if matched {
		p.stats.Answered++
	}
	if m.pages > 0 && t.Peer.Cluster == p.config.Cluster && t.accepts(m) && m.generation != t.generation {
		if reach, whole := t.pages.add(m); whole {
			t.reach, t.generation = reach, m.generation
			changed = true
		}
	}
	if changed {
		p.updateReach()
	}
	p.mu.Unlock()
	if changed {
		p.notify()
	}
}

// incoming is a probe from somebody.
type incoming struct {
	from netip.AddrPort
	at   Listen
	*message
}

// handleProbe answers a probe for this gateway. Only who asks over the link
// between the nodes of this cluster is told what it reaches.
func (p *Prober) handleProbe(now time.Time, c *net.UDPConn, m incoming) {
	p.mu.Lock()
	mine, list := p.gateway != "" && m.to == p.self(), p.reach
	if !mine {
		p.stats.Foreign++
	}
	p.mu.Unlock()
	if !mine {
		return
	}
	reply := message{
		kind: kindReply, sequence: m.sequence, nonce: m.nonce, sent: m.sent,
		from: m.to, to: m.message.from,
	}
	pages := [][]uint64{nil}
	if m.at.Device != "" {
		reply.generation = list.generation
		if m.generation != list.generation {
			pages = list.pages()
			reply.pages = byte(len(pages))
		}
	}
	for i, page := range pages {
		if !p.allow(now) {
			return
		}
		reply.page, reply.reach = byte(i), page
		_, err := c.WriteToUDPAddrPort(reply.encode(), m.from)
		p.count(func(s *Stats) {
			if err != nil {
				s.Failed++
			} else {
				s.Replied++
			}
		})
	}
}

// replyRate bounds the answers per second and in one burst: a thousand peers at
// the shortest sensible interval stay below it, a flood does not get through.
const replyRate = 20000

// bucket is a token bucket.
type bucket struct {
	tokens float64
	at     time.Time
}

// allow takes a token, or counts a probe that stays without an answer.
func (p *Prober) allow(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := &p.bucket
	// Two readers may come with their times in the wrong order: at never goes back.
	if b.at.IsZero() {
		b.tokens, b.at = replyRate, now
	} else if passed := now.Sub(b.at); passed > 0 {
		b.tokens, b.at = min(b.tokens+passed.Seconds()*replyRate, replyRate), now
	}
	if b.tokens < 1 {
		p.stats.Limited++
		return false
	}
	b.tokens--
	return true
}

func (p *Prober) count(add func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add(&p.stats)
}
