package flow

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Grace is how long answers are waited for after the last datagram or answer, unless a flow
// says otherwise.
const Grace = 2 * time.Second

// UDP is a flow of numbered datagrams to a server that sends them back.
type UDP struct {
	Target    string        // HOST:PORT
	Rate      int           // datagrams a second, 1..100000
	Size      int           // bytes of payload, from 24
	Count     int           // ends after so many; 0 = with the context
	Threshold time.Duration // silences from here on are listed
	Grace     time.Duration // how long the next answer is waited for in the end; 0 = Grace
	Dial      Dialer        // nil = Plain
	Ready     func()        // is called at the first answer; may be nil
}

// datagram: flow (8 bytes), number (8), padding.
const leastSize = 24

// Run sends until ctx ends (or Count is reached) and waits for late answers.
func (u UDP) Run(ctx context.Context) (UDPReport, error) {
	if u.Rate < 1 || u.Rate > 100_000 {
		return UDPReport{}, fmt.Errorf("rate %d: from 1 to 100000 datagrams a second", u.Rate)
	}
	conn, err := u.Dial.orPlain()(ctx, "udp", u.Target)
	if err != nil {
		return UDPReport{}, fmt.Errorf("open flow to %s: %w", u.Target, err)
	}
	defer conn.Close()
	widen(conn)
	r := &udpRun{UDP: u, conn: conn, flow: rand.Uint64(), began: time.Now()}
	r.tally = newTally(r.began, u.Threshold)
	var group sync.WaitGroup
	group.Go(r.receive)
	r.send(ctx)
	end := time.Since(r.began)
	r.await()
	_ = conn.SetReadDeadline(time.Now())
	group.Wait()
	report := r.tally.finish(end)
	report.Target, report.SendError = u.Target, r.failed
	return report, nil
}

// widen gives a socket room for what comes while this process waits for a
// processor: what is measured is the way, not the machine. Beyond the system's
// limit it takes a right that not everybody has; that limit is enough otherwise.
func widen(conn any) {
	if b, ok := conn.(interface{ SetReadBuffer(int) error }); ok {
		_ = b.SetReadBuffer(readBuffer)
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, readBuffer)
		})
	}
}

const readBuffer = 8 << 20 // bytes

type udpRun struct {
	UDP
	conn   net.Conn
	flow   uint64
	began  time.Time
	failed string

	mu    sync.Mutex
	tally *tally
}

// send keeps to the rate: what a late wake-up missed is made up for.
func (r *udpRun) send(ctx context.Context) {
	tick := time.NewTicker(max(time.Second/time.Duration(r.Rate), 500*time.Microsecond))
	defer tick.Stop()
	payload := make([]byte, max(r.Size, leastSize))
	binary.BigEndian.PutUint64(payload, r.flow)
	for sent := 0; ; {
		due := int(time.Since(r.began)*time.Duration(r.Rate)/time.Second) + 1
		for ; sent < due; sent++ {
			if r.Count > 0 && sent == r.Count {
				return
			}
			r.mu.Lock()
			n := r.tally.send(time.Since(r.began))
			r.mu.Unlock()
			binary.BigEndian.PutUint64(payload[8:], uint64(n))
			// Refusals and missing routes are part of what is measured: the datagram is lost.
			if _, err := r.conn.Write(payload); err != nil {
				r.failed = err.Error()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *udpRun) receive() {
	buffer := make([]byte, 64<<10)
	first := true
	for {
		n, err := r.conn.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < leastSize || binary.BigEndian.Uint64(buffer) != r.flow {
			continue // an ICMP message about an earlier datagram, or somebody else's
		}
		r.mu.Lock()
		r.tally.receive(int(binary.BigEndian.Uint64(buffer[8:])), time.Since(r.began))
		r.mu.Unlock()
		if first && r.Ready != nil {
			r.Ready()
		}
		first = false
	}
}

// await gives late answers their time, for as long as some come.
func (r *udpRun) await() {
	received, deadline := -1, time.Time{}
	for {
		r.mu.Lock()
		have := r.tally.report
		r.mu.Unlock()
		if have.Received > received {
			received, deadline = have.Received, time.Now().Add(cmp.Or(r.Grace, Grace))
		}
		if have.Received == have.Sent || time.Now().After(deadline) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
