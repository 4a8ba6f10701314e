package flow

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Call is one request and its answer, or one new connection.
type Call struct {
	At   time.Time
	Took time.Duration
	Err  error // nil = it was answered
}

// calls is a list that grows while others read it.
type calls struct {
	mu   sync.Mutex
	list []Call
}

func (c *calls) add(at time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, Call{At: at, Took: time.Since(at), Err: err})
}

// Begun gives the calls that began from..to and have ended.
func (c *calls) Begun(from, to time.Time) []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Call
	for _, call := range c.list {
		if !call.At.Before(from) && call.At.Before(to) {
			out = append(out, call)
		}
	}
	return out
}

// Requests is a stream of small requests over one TCP connection, one after the
// other. A connection that breaks is an error of the request, and a new one follows.
type Requests struct {
	calls
	stop chan struct{}
	wait sync.WaitGroup
	mine sync.Mutex
	conn net.Conn
}

// requestSize is what a request and its answer hold, in bytes.
const requestSize = 64

// patience is how long one request may take. TCP sends again after 0.2 s, 0.4 s,
// 0.8 s and so on, so a stall of one second costs two.
const patience = 10 * time.Second

// StartRequests begins a stream with a pause between an answer and the next request.
func StartRequests(from Place, to netip.AddrPort, pause time.Duration) *Requests {
	r := &Requests{stop: make(chan struct{})}
	r.wait.Go(func() {
		for !r.stopped(pause) {
			at := time.Now()
			r.add(at, r.once(from, to))
		}
	})
	return r
}

func (r *Requests) stopped(pause time.Duration) bool {
	select {
	case <-r.stop:
		return true
	case <-time.After(pause):
		return false
	}
}

func (r *Requests) once(from Place, to netip.AddrPort) error {
	conn, err := r.connection(from, to)
	if err != nil {
		return err
	}
	raw := make([]byte, requestSize)
	if err = conn.SetDeadline(time.Now().Add(patience)); err == nil {
		if _, err = conn.Write(raw); err == nil {
			_, err = io.ReadFull(conn, raw)
		}
	}
	if err != nil {
		r.drop()
	}
	return err
}

func (r *Requests) connection(from Place, to netip.AddrPort) (net.Conn, error) {
	r.mine.Lock()
	defer r.mine.Unlock()
	if r.conn != nil {
		return r.conn, nil
	}
	conn, err := from.dialTCP(to, patience)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte{kindEcho}); err != nil {
		_ = conn.Close()
		return nil, err
	}
	r.conn = conn
	return conn, nil
}

func (r *Requests) drop() {
	r.mine.Lock()
	defer r.mine.Unlock()
	if r.conn != nil {
		_ = r.conn.Close() // broken already
		r.conn = nil
	}
}

// Close ends the stream.
func (r *Requests) Close() error {
	close(r.stop)
	r.drop()
	r.wait.Wait()
	return nil
}

// Dials is a stream of new connections, each with one request and its answer.
type Dials struct {
	calls
	stop chan struct{}
	wait sync.WaitGroup
}

// DialPatience is how long a new connection may take to give its first answer:
// room for a second and a third SYN, which follow after 1 s and 2 s more.
const DialPatience = 4 * time.Second

// Ports of the connections of Dials, each in turn: below those that the kernel takes by
// itself. It may take one again after 10 s, while conntrack still knows the connection
// before, of which the new one would be a part: it goes where that went.
const (
	firstPort = 10_000
	endPort   = 32_768
)

// StartDials begins a stream with the given number of new connections a second.
func StartDials(from Place, to netip.AddrPort, rate int) *Dials {
	d := &Dials{stop: make(chan struct{})}
	d.wait.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for port := firstPort; ; port++ {
			select {
			case <-d.stop:
				return
			case <-tick.C:
			}
			if port == endPort {
				port = firstPort
			}
			at := time.Now()
			d.wait.Go(func() { d.add(at, dialOnce(from, port, to, at)) })
		}
	})
	return d
}

func dialOnce(from Place, port int, to netip.AddrPort, begun time.Time) error {
	deadline := time.Now().Add(DialPatience)
	conn, err := from.dialTCPFrom(port, to, DialPatience)
	if err != nil {
		return err
	}
	defer conn.Close()
	// Without this, fifty ports a second would wait for a minute each.
	if err := conn.SetLinger(0); err != nil {
		return err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	raw := binary.BigEndian.AppendUint64([]byte{kindCall}, uint64(begun.UnixNano()))
	if _, err := conn.Write(raw); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, raw[:1])
	return err
}

// Close ends the stream and waits for what was begun.
func (d *Dials) Close() error {
	close(d.stop)
	d.wait.Wait()
	return nil
}
