package flow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Kinds of connection: who speaks on it.
const (
	Idle       = "idle"        // nobody, until the client does in the end
	Busy       = "busy"        // the client asks and the server answers
	ClientPush = "client-push" // the client alone
	ServerPush = "server-push" // the server alone
)

// Kinds lists them in the order of the tables.
func Kinds() []string { return []string{Idle, Busy, ClientPush, ServerPush} }

// What the first byte of a connection tells the server to do.
const (
	kindEcho = 'e' // return everything
	kindSink = 's' // an 8 byte name follows; note when something comes
	kindCall = 'c' // the time at which it was begun follows, in 8 bytes; return one byte
	kindPush = 'p' // send something again and again
)

const pushEvery = 250 * time.Millisecond

// serve does what the first byte asks for.
func (r *Reflector) serve(conn net.Conn) {
	var head [9]byte
	if _, err := io.ReadFull(conn, head[:1]); err != nil {
		return
	}
	switch head[0] {
	case kindEcho:
		_, _ = io.Copy(conn, conn)
	case kindCall:
		if _, err := io.ReadFull(conn, head[1:]); err != nil {
			return
		}
		r.mu.Lock()
		if begun := time.Unix(0, int64(binary.BigEndian.Uint64(head[1:]))); begun.After(r.newest) {
			r.newest = begun
		}
		r.mu.Unlock()
		_, _ = conn.Write(head[:1]) // the client may be gone
	case kindPush:
		for {
			if _, err := conn.Write(head[:1]); err != nil {
				return
			}
			time.Sleep(pushEvery)
		}
	case kindSink:
		if _, err := io.ReadFull(conn, head[1:]); err != nil {
			return
		}
		name, raw := binary.BigEndian.Uint64(head[1:]), make([]byte, 64)
		for {
			if _, err := conn.Read(raw); err != nil {
				return
			}
			r.mu.Lock()
			r.heard[name] = time.Now()
			r.mu.Unlock()
		}
	}
}

func (r *Reflector) heardAfter(name uint64, at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard[name].After(at)
}

// Connections are established TCP connections of every kind, between one client
// pod and the servers behind one or several addresses.
type Connections struct {
	servers []*Reflector
	list    []*connection
	stop    chan struct{}
	wait    sync.WaitGroup
}

type connection struct {
	kind string
	name uint64
	conn *net.TCPConn
	last atomic.Int64 // when the client was last answered, UnixNano
	dead atomic.Bool  // reset, or closed by the other end
}

// Open makes count connections of each kind, over the addresses in turn. The
// servers are all that may be behind the addresses.
func Open(from Place, to []netip.AddrPort, servers []*Reflector, count int) (*Connections, error) {
	c := &Connections{servers: servers, stop: make(chan struct{})}
	for _, kind := range Kinds() {
		for i := range count {
			conn, err := from.dialTCP(to[i%len(to)], DialPatience)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s connection %d: %w", kind, i, err), c.Close())
			}
			one := &connection{kind: kind, name: uint64(len(c.list) + 1), conn: conn}
			c.list = append(c.list, one)
			if err := one.greet(); err != nil {
				return nil, errors.Join(fmt.Errorf("%s connection %d: %w", kind, i, err), c.Close())
			}
			c.start(one)
		}
	}
	return c, nil
}

func (c *connection) greet() error {
	hello := []byte{kindEcho}
	switch c.kind {
	case ClientPush:
		hello = binary.BigEndian.AppendUint64([]byte{kindSink}, c.name)
	case ServerPush:
		hello = []byte{kindPush}
	}
	_, err := c.conn.Write(hello)
	if err != nil || c.kind == ClientPush {
		return err
	}
	// One answer, so that the connection is known to work.
	raw := []byte{1}
	if c.kind != ServerPush {
		if _, err := c.conn.Write(raw); err != nil {
			return err
		}
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(DialPatience)); err != nil {
		return err
	}
	_, err = io.ReadFull(c.conn, raw)
	return errors.Join(err, c.conn.SetReadDeadline(time.Time{}))
}

func (c *Connections) start(one *connection) {
	c.wait.Go(func() { one.read() })
	if one.kind == Busy || one.kind == ClientPush {
		c.wait.Go(func() { one.write(c.stop) })
	}
}

func (c *connection) read() {
	raw := make([]byte, 4096)
	for {
		if _, err := c.conn.Read(raw); err != nil {
			c.dead.Store(true)
			return
		}
		c.last.Store(time.Now().UnixNano())
	}
}

func (c *connection) write(stop chan struct{}) {
	tick := time.NewTicker(pushEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if _, err := c.conn.Write([]byte{1}); err != nil {
			c.dead.Store(true)
			return
		}
	}
}

// Count is how many connections of each kind there are.
func (c *Connections) Count() map[string]int {
	out := map[string]int{}
	for _, one := range c.list {
		out[one.kind]++
	}
	return out
}

// Alive counts by kind the connections that carry data after a moment, within a
// limit. Idle ones are spoken on for that, by the client. It returns as soon as
// none is undecided.
func (c *Connections) Alive(after time.Time, limit time.Duration) map[string]int {
	for _, one := range c.list {
		if one.kind == Idle && !one.dead.Load() {
			_, _ = one.conn.Write([]byte{1}) // what fails gets no answer
		}
	}
	deadline := time.Now().Add(limit)
	for {
		alive, open := c.tally(after)
		if open == 0 || time.Now().After(deadline) {
			return alive
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *Connections) tally(after time.Time) (alive map[string]int, open int) {
	alive = map[string]int{}
	for _, one := range c.list {
		switch {
		case c.carried(one, after):
			alive[one.kind]++
		case !one.dead.Load():
			open++
		}
	}
	return alive, open
}

func (c *Connections) carried(one *connection, after time.Time) bool {
	if one.kind != ClientPush {
		return one.last.Load() > after.UnixNano()
	}
	for _, server := range c.servers {
		if server.heardAfter(one.name, after) {
			return true
		}
	}
	return false
}

// Close ends all connections.
func (c *Connections) Close() error {
	close(c.stop)
	for _, one := range c.list {
		_ = one.conn.SetLinger(0) // nothing is left to be said
		_ = one.conn.Close()
	}
	c.wait.Wait()
	return nil
}
