package migration

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"hawser.dev/hawser/internal/socket"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

// node is a Negotiator without sockets and kernel.
type node struct {
	*Negotiator
	name  string
	addr  netip.Addr
	peer  *node
	disk  map[string]Saved
	saves int
}

func newNode(name, addr string, saved map[string]Saved) *node {
	p := &node{name: name, addr: netip.MustParseAddr(addr)}
	p.Negotiator = New(Config{
		Port: 4804, Log: slog.New(slog.DiscardHandler), Restored: saved, Wake: trigger.New(), OnChange: func() {},
		Save: func(k map[string]Saved) error {
			p.disk = k
			p.saves++
			return nil
		},
	})
	return p
}

func newNodes() (a, b *node) {
	a, b = newNode("g1/a", "241.0.0.1", nil), newNode("g2/a", "241.0.0.2", nil)
	a.peer, b.peer = b, a
	return a, b
}

func (p *node) setWant(want TunnelID) {
	p.Set(p.name, []PairConfig{{Name: p.peer.name, Want: want, Source: p.addr, Addr: p.peer.addr}})
}

// round creates the tunnels like the agent.
func (p *node) round(want TunnelID) {
	p.setWant(want)
	p.save()
	tunnels := p.Tunnels()[p.peer.name]
	if tunnels == nil {
		tunnels = []TunnelID{want}
	}
	done := Installed{Active: tunnels[0], Devices: map[TunnelID][]string{}}
	for _, c := range tunnels {
		done.Devices[c] = []string{c.String()}
	}
	p.SetInstalled(map[string]Installed{p.peer.name: done})
}

// tick delivers the due probes and the replies.
func (p *node) tick(now time.Time) {
	for range 2 { // a change is reported after it is saved
		out, _ := p.Tick(now)
		p.save()
		for _, d := range out {
			p.deliver(d)
		}
	}
}

func (p *node) deliver(d socket.Datagram) {
	for _, reply := range p.peer.receive(d.To.Addr(), d.Device, netip.AddrPortFrom(p.addr, 4804), d.Raw) {
		p.receive(p.addr, reply.Device, netip.AddrPortFrom(d.To.Addr(), 4804), reply.Raw)
	}
}

// receive handles a datagram that arrived over a device.
func (p *node) receive(at netip.Addr, device string, from netip.AddrPort, raw []byte) []socket.Datagram {
	m, err := wire.Decode(raw)
	if err != nil {
		return nil
	}
	return p.Receive(time.Now(), transport.Packet{Local: socket.Bind{Addr: at}, Device: device, From: from, Message: m})
}

// TestMigration checks that two agents migrate to the wanted tunnel and save it.
func TestMigration(t *testing.T) {
	t.Parallel()
	was, is := allTunnels()[0], allTunnels()[1]
	a, b := newNodes()
	a.round(was)
	b.round(was)
	if out, _ := a.Tick(time.Now()); len(out) > 0 {
		t.Errorf("%d messages without a migration", len(out))
	}
	now := time.Now()
	for range 200 {
		now = now.Add(activeInterval)
		a.round(is)
		b.round(is)
		a.tick(now)
		b.tick(now)
	}
	for _, p := range []*node{a, b} {
		if saved := p.disk[p.peer.name]; saved.Active != is {
			t.Errorf("%s saved %+v", p.name, saved)
		}
	}
}

// TestHistory checks that a restarted agent saves nothing before Set, and continues with the state
// of the previous one.
func TestHistory(t *testing.T) {
	t.Parallel()
	was, is := allTunnels()[0], allTunnels()[1]
	saved := map[string]Saved{"g2/a": {Tunnels: []TunnelID{was, is}, Active: was}}
	p := newNode("g1/a", "241.0.0.1", saved)
	p.peer = newNode("g2/a", "241.0.0.2", nil)
	p.save()
	if p.saves > 0 {
		t.Error("saved before Set")
	}
	p.setWant(is)
	p.save()
	if got := p.Tunnels()["g2/a"]; len(got) != 2 || got[0] != was || got[1] != is {
		t.Errorf("starts with %v", got)
	}
}

// TestUnknownSenders checks that only the peer gets a reply, and only over the tunnel of the pair.
func TestUnknownSenders(t *testing.T) {
	t.Parallel()
	was, is := allTunnels()[0], allTunnels()[1]
	a, b := newNodes()
	a.round(was)
	b.round(was)
	a.round(is)
	out, _ := a.Tick(time.Now())
	if len(out) == 0 {
		t.Fatal("no probe")
	}
	raw, from := out[0].Raw, netip.AddrPortFrom(a.addr, 4804)
	over := was.String()
	damaged := append([]byte{}, raw...)
	damaged[8]++ // the sender
	other := append([]byte{}, raw...)
	other[16]++ // the receiver
	tests := map[string]struct {
		device string
		from   netip.AddrPort
		raw    []byte
	}{
		"address":    {over, netip.MustParseAddrPort("241.0.0.9:4804"), raw},
		"port":       {over, netip.MustParseAddrPort("241.0.0.1:4809"), raw},
		"device":     {is.String(), from, raw},
		"no device":  {"", from, raw},
		"name":       {over, from, damaged},
		"other name": {over, from, other},
		"cut":        {over, from, raw[:20]},
	}
	for name, tt := range tests {
		if got := b.receive(b.addr, tt.device, tt.from, tt.raw); got != nil {
			t.Errorf("%s: gets a reply", name)
		}
	}
	if got := b.receive(b.addr, over, from, raw); len(got) != 1 {
		t.Error("the peer gets no reply")
	}
}
