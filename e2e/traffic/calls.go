package traffic

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// Call is one message and its answer, over a new TCP connection or from a new UDP socket.
type Call struct {
	Target string // IP:PORT
	Who    string // name of the caller, at most 27 bytes
	UDP    bool
	Burst  bool   // TCP: the answer is 32 KiB long
	Reset  bool   // TCP: close with a reset, which frees the port at once
	Dial   Dialer // nil: from the namespace of this process
}

// Make makes the call. It returns the name of the server that answered the connection; a
// datagram has no server name.
func (c Call) Make(ctx context.Context) (server string, err error) {
	network := "tcp"
	if c.UDP {
		network = "udp"
	}
	begun := time.Now()
	conn, err := c.Dial.orPlain()(ctx, network, c.Target)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if c.UDP {
		return "", c.datagram(ctx, conn)
	}
	if c.Reset {
		reset(conn)
	}
	hello := message{who: c.Who, mode: modeOnce, arg: uint64(begun.UnixNano())}
	if c.Burst {
		hello.mode = modeBurst
	}
	messages := bufio.NewReader(conn)
	if server, err = handshake(ctx, conn, messages, hello); err != nil || !c.Burst {
		return server, err
	}
	for range burst {
		if _, err := receive(messages); err != nil {
			return "", err
		}
	}
	return server, nil
}

func (c Call) datagram(ctx context.Context, conn net.Conn) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write(message{who: c.Who, mode: modePacket}.encode()); err != nil {
		return err
	}
	raw := make([]byte, header)
	n, err := conn.Read(raw)
	if err == nil {
		_, _, err = decode(raw[:n])
	}
	return err
}

// Calls are calls over TCP at a rate.
type Calls struct {
	Call
	Rate    int           // calls per second, 1..10000
	Count   int           // number of calls; 0: until the context is done
	Timeout time.Duration // of one call; 0: 3s
	Slow    time.Duration // duration from which a call counts as slow; 0: never
	Ready   func()        // called after the first successful call; may be nil
	// OnAttempt is called after every attempt, never concurrently. Run returns its first
	// error. It may be nil.
	OnAttempt func(Attempt) error
}

// Attempt is one call.
type Attempt struct {
	At     time.Time `json:"at"`   // start
	Long   Millis    `json:"long"` // time until the answer or the failure
	Server string    `json:"server,omitempty"`
	Error  string    `json:"error,omitempty"` // empty if answered
}

// CallsReport is the result of all attempts.
type CallsReport struct {
	Target     string         `json:"target"`
	StartedAt  time.Time      `json:"startedAt"`
	Lasted     Millis         `json:"lasted"`
	Attempts   int            `json:"attempts"`
	Failed     int            `json:"failed"`
	Slow       int            `json:"slow"`
	Took       Spread         `json:"took"` // answered calls only
	Servers    map[string]int `json:"servers"`
	FirstError *Attempt       `json:"firstError,omitempty"`
	LastError  *Attempt       `json:"lastError,omitempty"`
}

// Run makes calls until ctx is done, then waits for the pending ones.
func (c Calls) Run(ctx context.Context) (CallsReport, error) {
	if c.Rate < 1 || c.Rate > 10_000 {
		return CallsReport{}, fmt.Errorf("rate %d: from 1 to 10000 connections a second", c.Rate)
	}
	c.Timeout = cmp.Or(c.Timeout, 3*time.Second)
	if err := RaiseFiles(uint64(c.Rate)*uint64(c.Timeout/time.Second+1)+256, 256); err != nil {
		return CallsReport{}, err
	}
	r := &callsRun{Calls: c, report: CallsReport{Target: c.Target, StartedAt: time.Now(), Servers: map[string]int{}}}
	var group sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(c.Rate))
	defer tick.Stop()
	for count := 0; ctx.Err() == nil && (c.Count == 0 || count < c.Count); count++ {
		group.Go(func() { r.record(c.attempt()) })
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	group.Wait()
	r.report.Took = Summarise(r.took)
	r.report.Lasted = Millis(time.Since(r.report.StartedAt))
	return r.report, r.failed
}

// attempt makes one call. It does not end with the measurement's context.
func (c Calls) attempt() Attempt {
	startedAt := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	server, err := c.Make(ctx)
	out := Attempt{At: startedAt, Long: Millis(time.Since(startedAt)), Server: server}
	if err != nil {
		out.Error = reason(err)
	}
	return out
}

type callsRun struct {
	Calls
	mu     sync.Mutex
	report CallsReport
	took   []time.Duration
	failed error // first error of OnAttempt
}

func (r *callsRun) record(a Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Attempts++
	if a.Error != "" {
		r.report.Failed++
		if r.report.FirstError == nil || a.At.Before(r.report.FirstError.At) {
			r.report.FirstError = &a
		}
		if r.report.LastError == nil || a.At.After(r.report.LastError.At) {
			r.report.LastError = &a
		}
	} else {
		if r.report.Servers[a.Server]++; len(r.took) == 0 && r.Ready != nil {
			r.Ready()
		}
		r.took = append(r.took, time.Duration(a.Long))
		if r.Slow > 0 && time.Duration(a.Long) >= r.Slow {
			r.report.Slow++
		}
	}
	if r.OnAttempt != nil {
		if err := r.OnAttempt(a); err != nil && r.failed == nil {
			r.failed = fmt.Errorf("record attempts: %w", err)
		}
	}
}
