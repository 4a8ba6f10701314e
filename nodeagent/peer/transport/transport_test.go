package transport

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"hawser.dev/hawser/internal/socket"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

// fakeProtocol sends given datagrams and records the received ones.
type fakeProtocol struct {
	at       socket.Bind
	wait     time.Duration
	received chan Packet

	mu    sync.Mutex
	out   []socket.Datagram
	sent  uint64
	ticks int
	moved bool
}

func (p *fakeProtocol) Sockets(all bool) map[socket.Bind]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.moved && !all {
		return nil
	}
	p.moved = false
	return map[socket.Bind]bool{p.at: true}
}

func (p *fakeProtocol) Tick(time.Time) ([]socket.Datagram, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ticks++
	out := p.out
	p.out = nil
	return out, p.wait
}

func (p *fakeProtocol) Sent(sent, failed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent += sent
}

func (p *fakeProtocol) Receive(_ time.Time, in Packet) []socket.Datagram {
	p.received <- in
	if in.Probe != nil && !in.Probe.Reply {
		return []socket.Datagram{{To: in.From, Raw: (&wire.Message{From: in.To, Probe: &wire.Probe{Reply: true}}).Encode()}}
	}
	return nil
}

// TestTransport checks that each protocol receives all packets, and that their packets leave from
// the same port.
func TestTransport(t *testing.T) {
	t.Parallel()
	free, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	_ = free.Close()
	at := socket.Bind{Addr: netip.MustParseAddr("127.0.0.1")}
	to := netip.AddrPortFrom(at.Addr, port)
	wake := trigger.New()
	protocols := []*fakeProtocol{
		{at: at, wait: time.Hour, received: make(chan Packet, 10), moved: true},
		{at: at, wait: time.Hour, received: make(chan Packet, 10), moved: true},
	}
	layer := New(Config{Port: port, Log: slog.New(slog.DiscardHandler), Wake: wake, Protocols: []Protocol{protocols[0], protocols[1]}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- layer.Run(ctx) }()
	defer cancel()
	protocols[1].mu.Lock()
	protocols[1].out = []socket.Datagram{
		{From: at, To: to, Raw: []byte("hello")},
		{From: at, To: to, Raw: (&wire.Message{From: 1, To: 2, Probe: &wire.Probe{Nonce: 3}, Tunnels: &wire.TunnelReport{WantReply: true}}).Encode()},
	}
	protocols[1].mu.Unlock()
	wake.Fire()
	for i, m := range protocols {
		in := receivePacket(t, m.received)
		if in.From != to || in.Local != at || in.Device != "lo" || in.Message.From != 1 || in.Probe.Nonce != 3 || !in.Tunnels.WantReply {
			t.Errorf("protocol %d received %+v", i, in)
		}
		for range protocols { // each of them replies
			if answer := receivePacket(t, m.received); answer.From != to || answer.Probe == nil || !answer.Probe.Reply || answer.Device != "" {
				t.Errorf("protocol %d received %+v", i, answer)
			}
		}
	}
	if n := layer.Malformed(); n != 1 {
		t.Errorf("%d malformed", n)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if protocols[1].sent != 2 || protocols[0].sent != 0 {
		t.Errorf("sent %d and %d, want 0 and 2", protocols[0].sent, protocols[1].sent)
	}
}

func receivePacket(t *testing.T, received chan Packet) Packet {
	t.Helper()
	select {
	case in := <-received:
		return in
	case <-time.After(time.Minute):
		t.Fatal("nothing received")
	}
	return Packet{}
}

// TestWanted checks that the sockets of all protocols are opened, and checked again after a change.
func TestWanted(t *testing.T) {
	t.Parallel()
	a, b := &fakeProtocol{at: socket.Bind{Device: "a"}, moved: true}, &fakeProtocol{at: socket.Bind{Device: "b"}, moved: true}
	layer := New(Config{Protocols: []Protocol{a, b}})
	both := map[socket.Bind]bool{a.at: true, b.at: true}
	for i, tt := range []struct {
		all, moved bool
		want       map[socket.Bind]bool
	}{{want: both}, {want: nil}, {moved: true, want: both}, {all: true, want: both}, {want: nil}} {
		if i > 0 {
			a.moved = tt.moved
		}
		if have := layer.wantedSockets(tt.all); !maps.Equal(have, tt.want) || (have == nil) != (tt.want == nil) {
			t.Errorf("step %d: %v, want %v", i, have, tt.want)
		}
	}
}
