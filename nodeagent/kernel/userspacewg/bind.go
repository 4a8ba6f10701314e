package userspacewg

import (
	"errors"
	"reflect"
	"sync"
	"unsafe"

	"golang.zx2c4.com/wireguard/conn"
)

// bind sends to IPv4 and to IPv6 through separate binds on the same sockets.
//
// StdNetBind reuses the destinations of packets from a pool. A destination that was used for an
// IPv4 address is four bytes long. If an IPv6 address is copied into it, twelve bytes are lost. On
// a gateway with peers of both families, IPv6 handshakes then go to 2001:db8:: instead of
// 2001:db8::21, until another entry of the pool is used (golang.zx2c4.com/wireguard,
// conn/bind_std.go, Send).
type bind struct {
	conn.Bind // receives, and sends to IPv4

	mu   sync.RWMutex
	ipv6 *conn.StdNetBind // sends to IPv6; nil if the library has changed, so Bind sends to both
}

func newBind() conn.Bind {
	std, ok := conn.NewDefaultBind().(*conn.StdNetBind)
	if !ok {
		return conn.NewDefaultBind()
	}
	return &bind{Bind: std}
}

// Open opens the sockets.
func (b *bind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ipv6 = nil
	receive, port, err := b.Bind.Open(port)
	if err == nil {
		b.ipv6 = sendOnlyBind(b.Bind.(*conn.StdNetBind))
	}
	return receive, port, err
}

// Close closes the sockets.
func (b *bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ipv6 = nil
	return b.Bind.Close()
}

// Send sends packets to one destination, from the last source address. If that fails because
// the address or its device is gone, the kernel chooses the source: the library watches routes
// for that only with its own bind.
func (b *bind) Send(packets [][]byte, to conn.Endpoint) error {
	err := b.send(packets, to)
	std, ok := to.(*conn.StdNetEndpoint)
	if err == nil || !ok || errors.As(err, new(conn.ErrUDPGSODisabled)) {
		return err
	}
	withoutSource := *std // other goroutines may send to it at the same time
	withoutSource.ClearSrc()
	return b.send(packets, &withoutSource)
}

func (b *bind) send(packets [][]byte, to conn.Endpoint) error {
	b.mu.RLock()
	ipv6 := b.ipv6
	b.mu.RUnlock()
	if ipv6 == nil || !to.DstIP().Is6() {
		return b.Bind.Send(packets, to)
	}
	return ipv6.Send(packets, to)
}

// sendOnlyBind returns a bind with the sockets of std and a separate pool. It only sends, and
// is never closed.
func sendOnlyBind(std *conn.StdNetBind) *conn.StdNetBind {
	out := conn.NewStdNetBind().(*conn.StdNetBind)
	from, to := reflect.ValueOf(std).Elem(), reflect.ValueOf(out).Elem()
	for _, name := range []string{"ipv6", "ipv6PC", "ipv6TxOffload", "blackhole6"} {
		source, target := from.FieldByName(name), to.FieldByName(name)
		if !source.IsValid() || !target.IsValid() {
			return nil
		}
		// The fields are not exported, and the library has no other access to the sockets.
		reflect.NewAt(target.Type(), unsafe.Pointer(target.UnsafeAddr())).Elem().
			Set(reflect.NewAt(source.Type(), unsafe.Pointer(source.UnsafeAddr())).Elem())
	}
	return out
}
