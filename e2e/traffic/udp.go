package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Grace is the default time to wait for answers after the last datagram or answer.
const Grace = 2 * time.Second

// UDP is a flow of numbered datagrams to a server that echoes them.
type UDP struct {
	Target    string        // IP:PORT
	Who       string        // name of the sender, at most 27 bytes
	Rate      int           // datagrams a second, 1..100000
	Size      int           // bytes of payload, from 37
	Count     int           // number of datagrams; 0: until the context is done
	Threshold time.Duration // the report lists silences of at least this time
	Grace     time.Duration // time to wait for late answers; 0: the constant Grace
	Dial      Dialer        // nil: from the namespace of this process
	Ready     func()        // called at the first answer; may be nil
}

// Flow is a running UDP flow. Its methods return the state so far. It is safe for concurrent
// use.
type Flow struct {
	udp       UDP
	conn      net.Conn
	id        uint64
	startedAt time.Time
	cancel    context.CancelFunc
	sender    sync.WaitGroup
	receiver  sync.WaitGroup

	mu     sync.Mutex
	tally  *tally
	end    time.Duration // time of the last datagram; 0 while sending
	failed string        // last error of sending
}

// Run sends until ctx is done or Count is reached, then waits for late answers.
func (u UDP) Run(ctx context.Context) (UDPReport, error) {
	f, err := u.Start(ctx)
	if err != nil {
		return UDPReport{}, err
	}
	f.sender.Wait()
	f.await()
	report := f.report()
	return report, f.Close()
}

// Start starts a flow. It ends when ctx is done, Count is reached or the flow is closed.
func (u UDP) Start(ctx context.Context) (*Flow, error) {
	if u.Rate < 1 || u.Rate > 100_000 {
		return nil, fmt.Errorf("rate %d: from 1 to 100000 datagrams a second", u.Rate)
	}
	conn, err := u.Dial.orPlain()(ctx, "udp", u.Target)
	if err != nil {
		return nil, fmt.Errorf("open flow to %s: %w", u.Target, err)
	}
	raiseReadBuffer(conn)
	f := &Flow{udp: u, conn: conn, id: rand.Uint64(), startedAt: time.Now(), tally: newTally()}
	ctx, f.cancel = context.WithCancel(ctx)
	f.sender.Go(func() { f.send(ctx) })
	f.receiver.Go(f.receive)
	return f, nil
}

// Close ends the flow at once. Its counts stay readable.
func (f *Flow) Close() error {
	f.cancel()
	f.sender.Wait()
	err := f.conn.Close()
	f.receiver.Wait()
	return err
}

// send sends at the rate. After a late wake-up it catches up.
func (f *Flow) send(ctx context.Context) {
	tick := time.NewTicker(max(time.Second/time.Duration(f.udp.Rate), 500*time.Microsecond))
	defer tick.Stop()
	size := max(f.udp.Size, minDatagram)
	packet := make([]byte, size)
	for sent := 0; ctx.Err() == nil; {
		due := int(time.Since(f.startedAt)*time.Duration(f.udp.Rate)/time.Second) + 1
		for ; sent < due && (f.udp.Count == 0 || sent < f.udp.Count); sent++ {
			f.mu.Lock()
			n := f.tally.send(time.Since(f.startedAt))
			f.mu.Unlock()
			copy(packet, message{who: f.udp.Who, mode: modePacket, arg: f.id, seq: uint64(n)}.encode())
			// A refused or unroutable datagram counts as lost.
			if err := f.sendNoWait(packet); err != nil {
				f.mu.Lock()
				f.failed = err.Error()
				f.mu.Unlock()
			}
		}
		if f.udp.Count > 0 && sent == f.udp.Count {
			break
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	f.mu.Lock()
	f.end = time.Since(f.startedAt)
	f.mu.Unlock()
}

// sendNoWait sends without blocking: while a queue on the path is full, earlier packets may
// fill the socket's buffer. A packet that the kernel refuses counts as lost.
func (f *Flow) sendNoWait(packet []byte) (err error) {
	if !control(f.conn, func(fd int) { err = unix.Send(fd, packet, unix.MSG_DONTWAIT) }) {
		_, err = f.conn.Write(packet)
	}
	return err
}

func (f *Flow) receive() {
	buffer := make([]byte, 64<<10)
	first := true
	for {
		n, err := f.conn.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP message about an earlier datagram
		}
		m, _, err := decode(buffer[:n])
		if err != nil || m.arg != f.id {
			continue // not of this flow
		}
		f.mu.Lock()
		f.tally.receive(int(m.seq), time.Since(f.startedAt))
		f.mu.Unlock()
		if first && f.udp.Ready != nil {
			f.udp.Ready()
		}
		first = false
	}
}

// await waits for late answers, until none arrived for the grace period.
func (f *Flow) await() {
	received, deadline := -1, time.Time{}
	for {
		_, sent, have := f.Counts()
		if have > received {
			received, deadline = have, time.Now().Add(cmp.Or(f.udp.Grace, Grace))
		}
		if have == sent || time.Now().After(deadline) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (f *Flow) report() UDPReport {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.tally.report(f.startedAt, f.end, f.udp.Threshold)
	r.Target, r.SendError = f.udp.Target, f.failed
	return r
}

// Counts returns the highest answered number (from 0; -1 if none), and the numbers of sent and
// answered datagrams.
func (f *Flow) Counts() (newest, sent, answered int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tally.highest, len(f.tally.sent), len(f.tally.arrived)
}

// Gap returns the longest time without an answer that overlaps from..to.
func (f *Flow) Gap(from, to time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tally.gap(from.Sub(f.startedAt), to.Sub(f.startedAt))
}

// Paused returns the longest time in from..to in which the sender itself sent nothing. A long
// pause means that the machine was too busy for a valid measurement.
func (f *Flow) Paused(from, to time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return longest(f.tally.sent, from.Sub(f.startedAt), to.Sub(f.startedAt))
}

// Lost returns the number of datagrams sent in from..to, and how many of these have no answer.
func (f *Flow) Lost(from, to time.Time) (lost, sent int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tally.lost(from.Sub(f.startedAt), to.Sub(f.startedAt))
}

// CheckComplete returns an error if a datagram of the last while has no answer. Datagrams
// younger than underWay do not count.
func (f *Flow) CheckComplete(while time.Duration) error {
	now := time.Now()
	to := now.Add(-underWay)
	lost, sent := f.Lost(to.Add(-while), to)
	gap := f.Gap(to.Add(-while), now)
	if lost == 0 && sent > 0 && gap < while {
		return nil
	}
	return fmt.Errorf("%[2]d of %[3]d datagrams of the last %[1]s have no answer; the longest gap is %[4]s", while, lost, sent, gap)
}

// underWay is the longest round trip in the lab, with room for a busy machine.
const underWay = 30 * time.Millisecond
