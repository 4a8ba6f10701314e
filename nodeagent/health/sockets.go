package health

import (
	"net/netip"

	"hawser.dev/hawser/nodeagent/socket"
)

// outgoing is one packet on its way.
type outgoing = socket.Datagram

// sockets makes the prober's.
func (p *Prober) sockets() *socket.Set {
	return socket.NewSet(socket.SetConfig{
		Name: "probe", Port: p.config.Port, Log: p.config.Log, Largest: maxPacket,
		Read: func(at Listen, from netip.AddrPort, raw []byte) []outgoing {
			return p.receive(p.clock(), at, from, raw)
		},
		Failed: func(n uint64) { p.count(0, n) },
	})
}

// count notes what became of packets.
func (p *Prober) count(sent, failed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Sent += sent
	p.stats.Failed += failed
}
