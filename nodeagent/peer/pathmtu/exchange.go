package pathmtu

import (
	"net/netip"
	"time"

	"hawser.dev/hawser/internal/socket"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

// Sockets implements transport.Protocol.
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
	for key := range f.links {
		out[socket.Bind{Addr: key.source}] = true
	}
	return out
}

// Sent implements transport.Protocol. A probe that the kernel refused counts as lost.
func (f *Finder) Sent(sent, failed uint64) {
	if sent+failed > 0 {
		f.count(func(s *Stats) {
			s.Sent += sent
			s.Failed += failed
		})
	}
}

// Receive implements transport.Protocol. It returns the reply to a probe.
func (f *Finder) Receive(now time.Time, in transport.Packet) []socket.Datagram {
	addr := in.From.Addr()
	switch {
	case in.Size == nil:
	case in.To != f.selfID():
		f.count(func(s *Stats) { s.Foreign++ })
	case in.Size.Reply:
		key := linkKey{in.Local.Addr, addr}
		f.mu.Lock()
		matched, changed := false, false
		if p := f.links[key]; p != nil && p.peerID == in.Message.From {
			matched, changed = p.onReply(now, *in.Message.Size)
			f.logChange(p, changed)
			f.queue.Schedule(p, p.next)
		}
		if matched {
			f.stats.Answered++
		} else {
			f.stats.Foreign++
		}
		first, scheduled := f.queue.First()
		early := scheduled && first.next.Before(f.nextTick)
		f.mu.Unlock()
		f.notify(changed)
		if early {
			f.config.Wake.Fire()
		}
	case !isComplete(in.Message, addr):
		f.count(func(s *Stats) { s.Malformed++ })
	case f.allowReply(now, addr, in.Message.From):
		f.count(func(s *Stats) { s.Replied++ })
		reply := wire.Message{From: in.To, To: in.Message.From, Size: &wire.SizeProbe{Reply: true, Bytes: in.Size.Bytes, Nonce: in.Size.Nonce}}
		return []socket.Datagram{{To: in.From, Raw: reply.Encode()}}
	}
	return nil
}

// selfID returns the ID of this gateway in messages.
func (f *Finder) selfID() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.self
}

// allowReply reports whether to reply to a probe. It allows only gateways of the clusterset, within
// the rate limit.
func (f *Finder) allowReply(now time.Time, from netip.Addr, id uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.gateways[from]; !ok || known != id {
		f.stats.Foreign++
		return false
	}
	if !f.replyLimit.Allow(now, replyRate) {
		f.stats.Limited++
		return false
	}
	return true
}

// overhead returns the length of the IP and UDP headers, in bytes.
func overhead(a netip.Addr) int {
	const udp = 8
	if a.Is4() {
		return 20 + udp
	}
	return 40 + udp
}

// minProbeSize returns the size of a probe without padding.
func minProbeSize(a netip.Addr) int { return overhead(a) + wire.MinSizeProbe }

// encodeProbe returns a datagram whose IP packet has the size of s.
func encodeProbe(from, to uint64, addr netip.Addr, s sizeProbe) []byte {
	m := wire.Message{
		From: from, To: to, Length: max(s.size-overhead(addr), wire.MinSizeProbe),
		Size: &wire.SizeProbe{Bytes: uint16(s.size), Nonce: s.nonce},
	}
	return m.Encode()
}

// isComplete reports whether a received probe has the size that it states. A truncated probe proves
// nothing.
func isComplete(m *wire.Message, from netip.Addr) bool {
	return int(m.Size.Bytes) == m.Length+overhead(from)
}
