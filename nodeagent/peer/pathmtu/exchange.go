package pathmtu

import (
	"net/netip"
	"time"

	"hawser.dev/hawser/internal/socket"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

// Sockets returns all own addresses. It returns nil if they have not changed, unless all is
// true.
func (f *Finder) Sockets(all bool) map[socket.Bind]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.rebind && !all {
		return nil
	}
	f.rebind = false
	out := make(map[socket.Bind]bool, len(f.listen)+1)
	for a := range f.listen {
		out[socket.Bind{Addr: a}] = true
	}
	for key := range f.paths {
		out[socket.Bind{Addr: key.source}] = true
	}
	return out
}

// Sent counts probes. A probe that the kernel refused counts as a lost one.
func (f *Finder) Sent(sent, failed uint64) {
	if sent+failed > 0 {
		f.count(func(s *Stats) {
			s.Sent += sent
			s.Failed += failed
		})
	}
}

// Receive handles a message, and returns the reply to a probe.
func (f *Finder) Receive(now time.Time, in transport.Packet) []socket.Datagram {
	addr := in.From.Addr()
	switch {
	case in.Size == nil:
	case in.To != f.id():
		f.count(func(s *Stats) { s.Foreign++ })
	case in.Size.Reply:
		at := linkKey{in.At.Addr, addr}
		f.mu.Lock()
		known, changed := false, false
		if p := f.paths[at]; p != nil && p.id == in.Message.From {
			known, changed = p.onReply(now, *in.Message.Size)
			f.report(p, changed)
			f.queue.Schedule(p, p.due)
		}
		if known {
			f.stats.Answered++
		} else {
			f.stats.Foreign++
		}
		first, any := f.queue.First()
		early := any && first.due.Before(f.until)
		f.mu.Unlock()
		f.notify(changed)
		if early {
			f.config.Wake.Fire()
		}
	case !isComplete(in.Message, addr):
		f.count(func(s *Stats) { s.Malformed++ })
	case f.admits(now, addr, in.Message.From):
		f.count(func(s *Stats) { s.Replied++ })
		answer := wire.Message{From: in.To, To: in.Message.From, Size: &wire.SizeProbe{Reply: true, Bytes: in.Size.Bytes, Nonce: in.Size.Nonce}}
		return []socket.Datagram{{To: in.From, Raw: answer.Encode()}}
	}
	return nil
}

// id returns the ID of this gateway in messages.
func (f *Finder) id() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.self
}

// admits reports whether to reply to a probe: only to gateways of the clusterset, and within
// the rate limit.
func (f *Finder) admits(now time.Time, from netip.Addr, id uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.gateways[from]; !ok || known != id {
		f.stats.Foreign++
		return false
	}
	if !f.bucket.Allow(now, replyRate) {
		f.stats.Limited++
		return false
	}
	return true
}

// overhead is the size of the headers around a datagram, bytes.
func overhead(a netip.Addr) int {
	const udp = 8
	if a.Is4() {
		return 20 + udp
	}
	return 40 + udp
}

// smallest returns the size of a probe without padding.
func smallest(a netip.Addr) int { return overhead(a) + wire.MinSizeProbe }

// probe returns a datagram whose IP packet has the size of s.
func probe(from, to uint64, addr netip.Addr, s sent) []byte {
	m := wire.Message{
		From: from, To: to, Length: max(s.size-overhead(addr), wire.MinSizeProbe),
		Size: &wire.SizeProbe{Bytes: uint16(s.size), Nonce: s.nonce},
	}
	return m.Encode()
}

// isComplete reports whether a received probe has the size that it states: a truncated probe proves
// nothing.
func isComplete(m *wire.Message, from netip.Addr) bool {
	return int(m.Size.Bytes) == m.Length+overhead(from)
}
