// Package benchmark measures TCP between two processes: throughput, connections per second, and
// round trip time.
package benchmark

import (
	"context"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// KeyBytes is the length of the key at the start of every connection. The server closes
// connections without the key, so that others cannot use it.
const KeyBytes = 16

// The mode of a connection: its byte after the key.
const (
	modeSink    = 's' // the server reads until the client closes its side, and replies with the number of bytes
	modeEcho    = 'e' // the server echoes every byte
	modeConnect = 'o' // the server echoes one byte and closes, so the client's port is free at once
)

// ioTimeout bounds the setup of a connection, and one exchange on it.
const ioTimeout = 5 * time.Second

// Serve serves until ctx is done, and then returns nil. It closes the listener.
func Serve(ctx context.Context, listener net.Listener, key []byte) error {
	if len(key) != KeyBytes {
		return fmt.Errorf("key has %d bytes instead of %d", len(key), KeyBytes)
	}
	var all sync.WaitGroup
	defer all.Wait()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept at %s: %w", listener.Addr(), err)
		}
		all.Go(func() {
			defer conn.Close()
			end := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer end()
			head := make([]byte, KeyBytes+1)
			_ = conn.SetReadDeadline(time.Now().Add(ioTimeout))
			if _, err := io.ReadFull(conn, head); err != nil || subtle.ConstantTimeCompare(head[:KeyBytes], key) != 1 {
				return
			}
			_ = conn.SetReadDeadline(time.Time{})
			switch head[KeyBytes] {
			case modeSink:
				n, err := io.Copy(io.Discard, conn)
				if err == nil {
					_, _ = conn.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
				}
			case modeEcho:
				_, _ = io.Copy(conn, conn)
			case modeConnect:
				_ = conn.SetDeadline(time.Now().Add(ioTimeout))
				_, _ = io.CopyN(conn, conn, 1)
			}
		})
	}
}

// Config configures a client.
type Config struct {
	Target  string        // host:port of the server; a name is resolved for each connection
	Key     []byte        // KeyBytes long
	For     time.Duration // duration of each of the three measurements
	Streams int           // concurrent connections, for throughput and for connections per second
	Wait    time.Duration // maximum time until the first reply of the server
}

// Result is the result of a client. An aborted run has the results up to then.
type Result struct {
	Target string `json:"target"`
	// Error is the reason why the run was aborted; empty = completed.
	Error string `json:"error,omitempty"`
	// Throughput is the payload throughput of all streams together, bits per second.
	Throughput float64 `json:"bits_per_second"`
	// Connections is the number of connections per second that were opened, used for one byte
	// each way, and closed.
	Connections float64 `json:"connections_per_second"`
	Failed      int     `json:"failed"` // failed connections
	// RTT is the median time for 64 bytes there and back on an open connection, microseconds,
	// and RTT99 the 99th percentile.
	RTT   float64 `json:"rtt_p50_us"`
	RTT99 float64 `json:"rtt_p99_us"`
}

// Measure waits for the server and runs the measurements in sequence.
func Measure(ctx context.Context, c Config) Result {
	r := Result{Target: c.Target}
	err := c.await(ctx)
	if err == nil {
		r.RTT, r.RTT99, err = c.latency(ctx)
	}
	if err == nil {
		r.Connections, r.Failed, err = c.connections(ctx)
	}
	if err == nil {
		var all sync.WaitGroup
		var arrived atomic.Int64
		failed := make([]error, c.Streams)
		startedAt := time.Now()
		for i := range c.Streams {
			all.Go(func() {
				n, err := c.sendAll(ctx)
				arrived.Add(n)
				failed[i] = err
			})
		}
		all.Wait()
		r.Throughput, err = float64(arrived.Load())*8/time.Since(startedAt).Seconds(), errors.Join(failed...)
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// open opens a connection for one mode.
func (c Config) open(ctx context.Context, purpose byte) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", c.Target)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	_ = conn.SetDeadline(time.Now().Add(ioTimeout))
	if _, err := conn.Write(append(slices.Clone(c.Key), purpose)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("send key to %s: %w", c.Target, err)
	}
	return conn.(*net.TCPConn), nil
}

// exchange sends bytes on an echoing connection and reads them back.
func exchange(conn net.Conn, buffer []byte) error {
	_ = conn.SetDeadline(time.Now().Add(ioTimeout))
	if _, err := conn.Write(buffer); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, buffer)
	return err
}

// tryOnce opens a connection, exchanges one byte, and closes it.
func (c Config) tryOnce(ctx context.Context) error {
	conn, err := c.open(ctx, modeConnect)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = exchange(conn, []byte{0})
	if err == nil {
		_, err = io.Copy(io.Discard, conn) // until the server has closed
	}
	if err != nil {
		return fmt.Errorf("exchange with %s: %w", c.Target, err)
	}
	return nil
}

// await waits until the server replies. Its name may not resolve yet.
func (c Config) await(ctx context.Context) error {
	for end := time.Now().Add(c.Wait); ; {
		err := c.tryOnce(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("no answer within %s: %w", c.Wait, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (c Config) latency(ctx context.Context) (half, most float64, err error) {
	conn, err := c.open(ctx, modeEcho)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	var took []time.Duration
	buffer := make([]byte, 64)
	for startedAt := time.Now(); time.Since(startedAt) < c.For && ctx.Err() == nil; {
		sent := time.Now()
		if err := exchange(conn, buffer); err != nil {
			return 0, 0, fmt.Errorf("exchange with %s on an open connection: %w", c.Target, err)
		}
		took = append(took, time.Since(sent))
	}
	if len(took) == 0 {
		return 0, 0, context.Cause(ctx)
	}
	slices.Sort(took)
	micro := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	return micro(took[len(took)/2]), micro(took[len(took)*99/100]), nil
}

func (c Config) connections(ctx context.Context) (each float64, failed int, err error) {
	var made, lost atomic.Int64
	var all sync.WaitGroup
	startedAt := time.Now()
	for range c.Streams {
		all.Go(func() {
			for time.Since(startedAt) < c.For && ctx.Err() == nil {
				if c.tryOnce(ctx) == nil {
					made.Add(1)
				} else {
					lost.Add(1)
				}
			}
		})
	}
	all.Wait()
	return float64(made.Load()) / time.Since(startedAt).Seconds(), int(lost.Load()), context.Cause(ctx)
}

// sendAll sends as much as it can, and returns the number of bytes that arrived.
func (c Config) sendAll(ctx context.Context) (int64, error) {
	conn, err := c.open(ctx, modeSink)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	buffer := make([]byte, 128<<10)
	for startedAt := time.Now(); time.Since(startedAt) < c.For && ctx.Err() == nil; {
		_ = conn.SetDeadline(time.Now().Add(ioTimeout))
		if _, err := conn.Write(buffer); err != nil {
			return 0, fmt.Errorf("send to %s: %w", c.Target, err)
		}
	}
	// Bytes in buffers on the path have to arrive first.
	_ = conn.SetDeadline(time.Now().Add(4 * ioTimeout))
	if err := conn.CloseWrite(); err != nil {
		return 0, fmt.Errorf("close stream to %s: %w", c.Target, err)
	}
	var count [8]byte
	if _, err := io.ReadFull(conn, count[:]); err != nil {
		return 0, fmt.Errorf("read byte count from %s: %w", c.Target, err)
	}
	return int64(binary.BigEndian.Uint64(count[:])), nil
}
