// Package transport exchanges datagrams about links between agents: liveness, path MTU, migrations
// and direct packets. It owns the sockets and the only goroutine that sends. Its protocols define
// the content. They have no goroutine, socket or clock.
package transport

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"hawser.dev/hawser/internal/socket"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

// Packet is a received message.
type Packet struct {
	Local socket.Bind
	From  netip.AddrPort
	// Device is the receiving device. Only messages with Tunnels have it.
	Device string
	*wire.Message
}

// Protocol is one protocol of a Transport. Its methods must be safe for concurrent use.
type Protocol interface {
	// Sockets returns the sockets for sending and receiving. If all is false, it may return nil
	// to report no change.
	Sockets(all bool) map[socket.Bind]bool
	// Tick returns the packets that are due and the time until the next tick. It must not
	// block.
	Tick(now time.Time) ([]socket.Datagram, time.Duration)
	// Sent records how many packets of the last Tick were sent and how many failed.
	Sent(sent, failed uint64)
	// Receive handles a packet, which may be for another protocol, and returns the replies.
	Receive(now time.Time, in Packet) []socket.Datagram
}

// Config is the fixed configuration of a Transport.
type Config struct {
	Port uint16 // UDP port of both ends: desired.ProbePort
	Log  *slog.Logger
	// Wake fires if a tick is due earlier than the last tick returned.
	Wake      trigger.Trigger
	Protocols []Protocol // in the order in which they send
}

// Transport runs protocols over one set of sockets.
type Transport struct {
	config    Config
	sockets   []map[socket.Bind]bool // by index of the protocol
	malformed atomic.Uint64
}

// New returns a Transport. Run starts it.
func New(config Config) *Transport {
	return &Transport{config: config, sockets: make([]map[socket.Bind]bool, len(config.Protocols))}
}

// Run sends and receives until ctx is done. It returns after all its goroutines have ended. It
// opens the sockets in the network namespace of the calling thread.
func (t *Transport) Run(ctx context.Context) error {
	sockets := socket.NewSet(socket.SetConfig{Port: t.config.Port, Log: t.config.Log, MaxDatagram: wire.Largest, Read: t.receive, Changed: t.config.Wake.Fire})
	defer sockets.Close()
	t.config.Wake.Run(ctx, func() time.Duration {
		wait := sockets.Update(time.Now(), t.wantedSockets)
		for _, protocol := range t.config.Protocols {
			out, next := protocol.Tick(time.Now())
			protocol.Sent(sockets.Send(out))
			wait = min(wait, next)
		}
		return wait
	})
	return nil
}

// Malformed returns the number of received datagrams that could not be decoded.
func (t *Transport) Malformed() uint64 { return t.malformed.Load() }

// wantedSockets returns all sockets that the protocols need; nil if they did not change.
func (t *Transport) wantedSockets(all bool) map[socket.Bind]bool {
	changed := all
	for i, protocol := range t.config.Protocols {
		if binds := protocol.Sockets(all); binds != nil {
			t.sockets[i], changed = binds, true
		}
	}
	if !changed {
		return nil
	}
	out := map[socket.Bind]bool{}
	for _, binds := range t.sockets {
		for bind := range binds {
			out[bind] = true
		}
	}
	return out
}

// receive passes a datagram to every protocol and returns their replies.
func (t *Transport) receive(arrival socket.Arrival, raw []byte) []socket.Datagram {
	m, err := wire.Decode(raw)
	if err != nil {
		t.malformed.Add(1)
		return nil
	}
	packet := Packet{Local: arrival.Local, From: arrival.From, Message: m}
	if m.Tunnels != nil {
		packet.Device = socket.DeviceName(arrival.Index)
	}
	var out []socket.Datagram
	now := time.Now()
	for _, protocol := range t.config.Protocols {
		out = append(out, protocol.Receive(now, packet)...)
	}
	return out
}
