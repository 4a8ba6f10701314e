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

// party is an Exchange whose sockets and kernel are the test's.
type party struct {
	*Negotiator
	name  string
	addr  netip.Addr
	other *party
	disk  map[string]Saved
	saves int
}

func newParty(name, addr string, kept map[string]Saved) *party {
	p := &party{name: name, addr: netip.MustParseAddr(addr)}
	p.Negotiator = New(Config{
		Port: 4804, Log: slog.New(slog.DiscardHandler), Kept: kept, Wake: trigger.New(), OnChange: func() {},
		Keep: func(k map[string]Saved) error {
			p.disk = k
			p.saves++
			return nil
		},
	})
	return p
}

func parties() (a, b *party) {
	a, b = newParty("g1/a", "241.0.0.1", nil), newParty("g2/a", "241.0.0.2", nil)
	a.other, b.other = b, a
	return a, b
}

func (p *party) set(want TunnelID) {
	p.Set(p.name, []PairConfig{{Name: p.other.name, Want: want, Source: p.addr, Addr: p.other.addr}})
}

// pass does what the agent does: make what is said, and tell.
func (p *party) pass(want TunnelID) {
	p.set(want)
	p.keep()
	tunnels := p.Tunnels()[p.other.name]
	if tunnels == nil {
		tunnels = []TunnelID{want}
	}
	done := Installed{Active: tunnels[0], Devices: map[TunnelID][]string{}}
	for _, c := range tunnels {
		done.Devices[c] = []string{c.String()}
	}
	p.SetInstalled(map[string]Installed{p.other.name: done})
}

// turn sends what is due, and the answers.
func (p *party) turn(now time.Time) {
	for range 2 { // what is new is said once it is kept
		out, _ := p.Tick(now)
		p.keep()
		for _, d := range out {
			p.deliver(d)
		}
	}
}

func (p *party) deliver(d socket.Datagram) {
	for _, answer := range p.other.receive(d.To.Addr(), d.Device, netip.AddrPortFrom(p.addr, 4804), d.Raw) {
		p.receive(p.addr, answer.Device, netip.AddrPortFrom(d.To.Addr(), 4804), answer.Raw)
	}
}

// receive takes a datagram at an own address that came over a device.
func (p *party) receive(at netip.Addr, device string, from netip.AddrPort, raw []byte) []socket.Datagram {
	m, err := wire.Decode(raw)
	if err != nil {
		return nil
	}
	return p.Receive(time.Now(), transport.Packet{At: socket.Bind{Addr: at}, Device: device, From: from, Message: m})
}

func TestExchange(t *testing.T) {
	t.Parallel()
	was, is := universe()[0], universe()[1]
	a, b := parties()
	a.pass(was)
	b.pass(was)
	if out, _ := a.Tick(time.Now()); len(out) > 0 {
		t.Errorf("%d messages while nothing changes", len(out))
	}
	now := time.Now()
	for range 200 {
		now = now.Add(activeInterval)
		a.pass(is)
		b.pass(is)
		a.turn(now)
		b.turn(now)
	}
	for _, p := range []*party{a, b} {
		if kept := p.disk[p.other.name]; kept.Use != is {
			t.Errorf("%s kept %+v", p.name, kept)
		}
	}
}

// TestHistory: an agent that starts writes nothing before it knows its pairs, and
// goes on where it was.
func TestHistory(t *testing.T) {
	t.Parallel()
	was, is := universe()[0], universe()[1]
	kept := map[string]Saved{"g2/a": {Tunnels: []TunnelID{was, is}, Use: was}}
	p := newParty("g1/a", "241.0.0.1", kept)
	p.other = newParty("g2/a", "241.0.0.2", nil)
	p.keep()
	if p.saves > 0 {
		t.Error("wrote before it knew anything")
	}
	p.set(is)
	p.keep()
	if got := p.Tunnels()["g2/a"]; len(got) != 2 || got[0] != was || got[1] != is {
		t.Errorf("begins with %v", got)
	}
}

// TestStrangers: what does not come from the peer over its tunnel has no answer.
func TestStrangers(t *testing.T) {
	t.Parallel()
	was, is := universe()[0], universe()[1]
	a, b := parties()
	a.pass(was)
	b.pass(was)
	a.pass(is)
	out, _ := a.Tick(time.Now())
	if len(out) == 0 {
		t.Fatal("nothing is asked")
	}
	raw, from := out[0].Raw, netip.AddrPortFrom(a.addr, 4804)
	over := was.String()
	damaged := append([]byte{}, raw...)
	damaged[8]++ // whose it says it is
	other := append([]byte{}, raw...)
	other[16]++ // for whom it says it is
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
			t.Errorf("%s: answered", name)
		}
	}
	if got := b.receive(b.addr, over, from, raw); len(got) != 1 {
		t.Error("the peer itself is not answered")
	}
}
