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

// Grace is how long answers are waited for after the last datagram or answer, unless a flow
// says otherwise.
const Grace = 2 * time.Second

// UDP is a flow of numbered datagrams to a server that sends them back.
type UDP struct {
	Target    string        // IP:PORT
	Who       string        // sends, in at most 27 bytes
	Rate      int           // datagrams a second, 1..100000
	Size      int           // bytes of payload, from 37
	Count     int           // ends after so many; 0 = with the context
	Threshold time.Duration // silences from here on are listed
	Grace     time.Duration // how long the next answer is waited for in the end; 0 = Grace
	Dial      Dialer        // nil = from where the process is
	Ready     func()        // is called at the first answer; may be nil
}

// Flow is a UDP flow that was started. What is asked of a moment is answered as far as
// answers have come.
type Flow struct {
	udp    UDP
	conn   net.Conn
	id     uint64
	began  time.Time
	cancel context.CancelFunc
	sender sync.WaitGroup
	taker  sync.WaitGroup

	mu     sync.Mutex
	tally  *tally
	end    time.Duration // of sending, when it has ended
	failed string        // the last error of sending
}

// Run sends until ctx ends (or Count is reached) and waits for late answers.
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

// Start begins a flow, which lasts until ctx ends, Count is reached or it is closed.
func (u UDP) Start(ctx context.Context) (*Flow, error) {
	if u.Rate < 1 || u.Rate > 100_000 {
		return nil, fmt.Errorf("rate %d: from 1 to 100000 datagrams a second", u.Rate)
	}
	conn, err := u.Dial.orPlain()(ctx, "udp", u.Target)
	if err != nil {
		return nil, fmt.Errorf("open flow to %s: %w", u.Target, err)
	}
	widen(conn)
	f := &Flow{udp: u, conn: conn, id: rand.Uint64(), began: time.Now(), tally: newTally()}
	ctx, f.cancel = context.WithCancel(ctx)
	f.sender.Go(func() { f.send(ctx) })
	f.taker.Go(f.receive)
	return f, nil
}

// Close ends the flow at once. What is known of it stays.
func (f *Flow) Close() error {
	f.cancel()
	f.sender.Wait()
	err := f.conn.Close()
	f.taker.Wait()
	return err
}

// send keeps to the rate: what a late wake-up missed is made up for.
func (f *Flow) send(ctx context.Context) {
	tick := time.NewTicker(max(time.Second/time.Duration(f.udp.Rate), 500*time.Microsecond))
	defer tick.Stop()
	size := max(f.udp.Size, leastDatagram)
	packet := make([]byte, size)
	for sent := 0; ctx.Err() == nil; {
		due := int(time.Since(f.began)*time.Duration(f.udp.Rate)/time.Second) + 1
		for ; sent < due && (f.udp.Count == 0 || sent < f.udp.Count); sent++ {
			f.mu.Lock()
			n := f.tally.send(time.Since(f.began))
			f.mu.Unlock()
			copy(packet, message{who: f.udp.Who, mode: modePacket, arg: f.id, seq: uint64(n)}.encode())
			// Refusals and missing routes are part of what is measured: the datagram is lost.
			if err := f.put(packet); err != nil {
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
	f.end = time.Since(f.began)
	f.mu.Unlock()
}

// put sends without ever waiting: when a queue on the way is full, what this
// socket sent before may fill its buffer. A packet that the kernel refuses is
// one that got lost.
func (f *Flow) put(packet []byte) (err error) {
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
			continue // somebody else's
		}
		f.mu.Lock()
		f.tally.receive(int(m.seq), time.Since(f.began))
		f.mu.Unlock()
		if first && f.udp.Ready != nil {
			f.udp.Ready()
		}
		first = false
	}
}

// await gives late answers their time, for as long as some come.
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
	r := f.tally.report(f.began, f.end, f.udp.Threshold)
	r.Target, r.SendError = f.udp.Target, f.failed
	return r
}

// Counts gives the highest number that was answered, from 0 on and -1 when none was, and how
// many datagrams were sent and answered so far.
func (f *Flow) Counts() (newest, sent, answered int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tally.highest, len(f.tally.sent), len(f.tally.arrived)
}

// Gap is the longest time without an answer that touches the time from..to.
func (f *Flow) Gap(from, to time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tally.gap(from.Sub(f.began), to.Sub(f.began))
}

// Paused is the longest time without a datagram that the sender itself sent, which
// touches the time from..to: then the machine had no processor for the sender, and
// what is measured is the machine.
func (f *Flow) Paused(from, to time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return longest(f.tally.sent, from.Sub(f.began), to.Sub(f.began))
}

// Lost counts the datagrams that were sent from..to, and those of them that never
// came back.
func (f *Flow) Lost(from, to time.Time) (lost, sent int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tally.lost(from.Sub(f.began), to.Sub(f.began))
}

// Whole says what is missing of the datagrams of the last while; nil = every one
// came back. The newest may still be under way and do not count.
func (f *Flow) Whole(while time.Duration) error {
	now := time.Now()
	to := now.Add(-underWay)
	lost, sent := f.Lost(to.Add(-while), to)
	gap := f.Gap(to.Add(-while), now)
	if lost == 0 && sent > 0 && gap < while {
		return nil
	}
	return fmt.Errorf("of the last %s %d of %d datagrams did not come back, the longest gap is %s", while, lost, sent, gap)
}

// underWay is how long an answer may take in the lab, with room for a busy machine.
const underWay = 30 * time.Millisecond
