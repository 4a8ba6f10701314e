package socket

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// rawIdleTimeout is the time after the last use at which a raw socket is closed.
const rawIdleTimeout = 10 * time.Second

// udpHeaderLen is the length of the UDP header, in bytes.
const udpHeaderLen = 8

// rawSender sends datagrams through devices regardless of routes, from the port of a Set. It probes
// both tunnels of a pair, of which only one is in use. The sockets are raw, because the UDP socket
// that receives the replies owns the port. Two UDP sockets with one address and port, of which one
// is bound to a device, need SO_REUSEADDR. Any process of the host could then bind to the port. The
// zero value has no socket. Its methods are safe for concurrent use.
type rawSender struct {
	mu   sync.Mutex
	open map[Bind]*rawConn
}

type rawConn struct {
	net.PacketConn
	index int // interface index when the socket was opened
	used  time.Time
}

func (r *rawSender) send(d Datagram, port uint16) error {
	bind := Bind{Addr: d.From.Addr, Device: d.Device}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.socket(bind)
	if err != nil {
		return err
	}
	c.used = time.Now()
	head := make([]byte, udpHeaderLen, udpHeaderLen+len(d.Raw))
	binary.BigEndian.PutUint16(head, port)
	binary.BigEndian.PutUint16(head[2:], d.To.Port())
	binary.BigEndian.PutUint16(head[4:], uint16(udpHeaderLen+len(d.Raw)))
	// The checksum is 0. Over IPv4 this means none (RFC 768); over IPv6 the kernel computes it.
	if _, err := c.WriteTo(append(head, d.Raw...), &net.IPAddr{IP: d.To.Addr().AsSlice()}); err != nil {
		return fmt.Errorf("send over %s to %s: %w", d.Device, d.To, err)
	}
	return nil
}

// socket returns the socket of an address and a device. The caller must hold r.mu.
func (r *rawSender) socket(bind Bind) (*rawConn, error) {
	index := DeviceIndex(bind.Device)
	if c := r.open[bind]; c != nil {
		if c.index == index {
			return c, nil
		}
		r.close(bind)
	}
	options := Options{Freebind: true, Device: bind.Device, HopLimit: 1}
	config := net.ListenConfig{Control: func(network, address string, raw syscall.RawConn) error {
		if err := options.Control(network, address, raw); err != nil {
			return err
		}
		var failed error
		if err := raw.Control(func(fd uintptr) { failed = sendOnly(network, int(fd)) }); err != nil {
			return err
		}
		return failed
	}}
	conn, err := config.ListenPacket(context.Background(), Network("ip", bind.Addr)+":udp", bind.Addr.String())
	if err != nil {
		return nil, err
	}
	if r.open == nil {
		r.open = map[Bind]*rawConn{}
	}
	c := &rawConn{PacketConn: conn, index: index}
	r.open[bind] = c
	return c, nil
}

func (r *rawSender) close(bind Bind) {
	_ = r.open[bind].Close()
	delete(r.open, bind)
}

// sweep closes the sockets whose last use was more than unused ago. If now is zero, it closes all
// sockets.
func (r *rawSender) sweep(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for bind, c := range r.open {
		if now.IsZero() || now.Sub(c.used) > rawIdleTimeout {
			r.close(bind)
		}
	}
}
