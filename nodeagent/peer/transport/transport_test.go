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

// machine says what it is told to, and notes what it hears.
type machine struct {
	at    socket.Bind
	wait  time.Duration
	heard chan Packet

	mu    sync.Mutex
	out   []socket.Datagram
	sent  uint64
	ticks int
	moved bool
}

func (m *machine) Sockets(all bool) map[socket.Bind]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.moved && !all {
		return nil
	}
	m.moved = false
	return map[socket.Bind]bool{m.at: true}
}

func (m *machine) Tick(time.Time) ([]socket.Datagram, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ticks++
	out := m.out
	m.out = nil
	return out, m.wait
}

func (m *machine) Sent(sent, failed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent += sent
}

func (m *machine) Receive(_ time.Time, in Packet) []socket.Datagram {
	m.heard <- in
	if in.Probe != nil && !in.Probe.Reply {
		return []socket.Datagram{{To: in.From, Raw: (&wire.Message{From: in.To, Probe: &wire.Probe{Reply: true}}).Encode()}}
	}
	return nil
}

// TestTransport: every machine gets what comes, and what they say leaves by the one port.
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
	machines := []*machine{
		{at: at, wait: time.Hour, heard: make(chan Packet, 10), moved: true},
		{at: at, wait: time.Hour, heard: make(chan Packet, 10), moved: true},
	}
	layer := New(Config{Port: port, Log: slog.New(slog.DiscardHandler), Wake: wake, Machines: []Protocol{machines[0], machines[1]}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- layer.Run(ctx) }()
	defer cancel()
	machines[1].mu.Lock()
	machines[1].out = []socket.Datagram{
		{From: at, To: to, Raw: []byte("hello")},
		{From: at, To: to, Raw: (&wire.Message{From: 1, To: 2, Probe: &wire.Probe{Nonce: 3}, Tunnels: &wire.TunnelReport{WantReply: true}}).Encode()},
	}
	machines[1].mu.Unlock()
	wake.Fire()
	for i, m := range machines {
		in := get(t, m.heard)
		if in.From != to || in.At != at || in.Device != "lo" || in.Message.From != 1 || in.Probe.Nonce != 3 || !in.Tunnels.WantReply {
			t.Errorf("machine %d heard %+v", i, in)
		}
		for range machines { // each of them answers
			if answer := get(t, m.heard); answer.From != to || answer.Probe == nil || !answer.Probe.Reply || answer.Device != "" {
				t.Errorf("machine %d heard %+v", i, answer)
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
	if machines[1].sent != 2 || machines[0].sent != 0 {
		t.Errorf("sent %d and %d, want 0 and 2", machines[0].sent, machines[1].sent)
	}
}

func get(t *testing.T, heard chan Packet) Packet {
	t.Helper()
	select {
	case in := <-heard:
		return in
	case <-time.After(time.Minute):
		t.Fatal("nothing is heard")
	}
	return Packet{}
}

// TestWanted: sockets are for the places of all machines, and looked at when one moved.
func TestWanted(t *testing.T) {
	t.Parallel()
	a, b := &machine{at: socket.Bind{Device: "a"}, moved: true}, &machine{at: socket.Bind{Device: "b"}, moved: true}
	layer := New(Config{Machines: []Protocol{a, b}})
	both := map[socket.Bind]bool{a.at: true, b.at: true}
	for i, tt := range []struct {
		all, moved bool
		want       map[socket.Bind]bool
	}{{want: both}, {want: nil}, {moved: true, want: both}, {all: true, want: both}, {want: nil}} {
		if i > 0 {
			a.moved = tt.moved
		}
		if have := layer.wanted(tt.all); !maps.Equal(have, tt.want) || (have == nil) != (tt.want == nil) {
			t.Errorf("step %d: %v, want %v", i, have, tt.want)
		}
	}
}
