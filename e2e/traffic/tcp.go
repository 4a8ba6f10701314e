package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// TCP is a set of long-lived connections. Each is tested at the end.
type TCP struct {
	Targets  []string      // HOST:PORT; connections use them in rotation
	Count    int           // number of connections; they use the kinds in rotation
	Kinds    []Kind        // empty: all
	Interval time.Duration // between two messages of a connection that is not idle
	Line     int           // minimum bytes of a message of a busy connection
	Patience time.Duration // a connection without progress for this time is dead
	Grace    time.Duration // time for the test at the end; 0: Patience
	Open     time.Duration // time in which all must open; failed attempts are repeated
	Reset    bool          // close with resets, which frees the ports at once
	Dial     Dialer        // nil: from the namespace of this process
	Ready    func()        // called when all are open; may be nil
}

// TCPReport counts the connections that worked at the end.
type TCPReport struct {
	Targets     []string             `json:"targets"`
	StartedAt   time.Time            `json:"startedAt"`
	Opened      Millis               `json:"opened"` // time to open all
	Lasted      Millis               `json:"lasted"`
	Connections int                  `json:"connections"`
	Survivors   int                  `json:"survivors"`
	Resets      int                  `json:"resets"`   // ended by RST, FIN or ICMP
	Timeouts    int                  `json:"timeouts"` // no progress for Patience
	Kinds       map[Kind]*KindReport `json:"kinds"`
	Servers     map[string]int       `json:"servers"`  // connections by server
	Failures    []Failure            `json:"failures"` // the first maxFailures
}

// KindReport is the part of TCPReport for one kind.
type KindReport struct {
	Connections int    `json:"connections"`
	Survivors   int    `json:"survivors"`
	Resets      int    `json:"resets"`
	Timeouts    int    `json:"timeouts"`
	Stall       Spread `json:"stall"` // of the survivors' longest stalls; idle: the exchange at the end
}

// Failure is a connection that did not survive.
type Failure struct {
	ID     int    `json:"id"`
	Kind   Kind   `json:"kind"`
	Local  string `json:"local"`
	Target string `json:"target"`
	Server string `json:"server"`
	Error  string `json:"error"`
}

const (
	// maxFailures bounds the list of failures in a report.
	maxFailures = 50
	// openers is the number of connections opened at the same time.
	openers = 32
)

// Run opens all connections, uses them until ctx is done and then tests each. It fails if
// not all could be opened.
func (t TCP) Run(ctx context.Context) (TCPReport, error) {
	if len(t.Kinds) == 0 {
		t.Kinds = Kinds()
	}
	if t.Count < 1 || len(t.Targets) == 0 || t.Interval <= 0 || t.Patience <= 0 {
		return TCPReport{}, errors.New("tcp connections need a target, a count, an interval and a patience")
	}
	if err := RaiseFiles(uint64(2*t.Count+256), uint64(t.Count+64)); err != nil {
		return TCPReport{}, err
	}
	report := TCPReport{
		Targets: t.Targets, StartedAt: time.Now(), Connections: t.Count,
		Kinds: map[Kind]*KindReport{}, Servers: map[string]int{}, Failures: []Failure{},
	}
	crowd, err := t.open(ctx)
	defer func() {
		for _, m := range crowd {
			if m.Connection != nil {
				if t.Reset {
					reset(m.conn)
				}
				_ = m.Close()
			}
		}
	}()
	if err != nil {
		return TCPReport{}, err
	}
	report.Opened = Millis(time.Since(report.StartedAt))
	var group sync.WaitGroup
	for _, m := range crowd {
		group.Go(func() {
			// Spread the senders over the interval.
			pause(ctx, t.Interval*time.Duration(m.id%64)/64)
			m.stall, m.err = t.exercise(ctx, m.Connection)
		})
	}
	if t.Ready != nil {
		t.Ready()
	}
	group.Wait()
	report.judge(crowd)
	report.Lasted = Millis(time.Since(report.StartedAt))
	return report, nil
}

// member is one connection of the set.
type member struct {
	*Connection
	id     int
	kind   Kind
	target string
	stall  time.Duration // the longest time without progress
	err    error
}

// open opens the connections. It repeats failed attempts until t.Open is over.
func (t TCP) open(ctx context.Context) ([]*member, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(t.Open, 20*time.Second))
	defer cancel()
	crowd := make([]*member, t.Count)
	next := make(chan *member)
	var group sync.WaitGroup
	for range openers {
		group.Go(func() {
			for m := range next {
				for {
					attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
					m.Connection, m.err = Open(attempt, t.Dial, m.target, m.kind, "", t.Interval)
					cancel()
					if m.err == nil || ctx.Err() != nil {
						break
					}
					pause(ctx, 50*time.Millisecond)
				}
			}
		})
	}
	for i := range crowd {
		crowd[i] = &member{id: i, kind: t.Kinds[i%len(t.Kinds)], target: t.Targets[(i/len(t.Kinds))%len(t.Targets)]}
		next <- crowd[i]
	}
	close(next)
	group.Wait()
	for _, m := range crowd {
		if m.err != nil {
			return crowd, fmt.Errorf("open connection %d of %d to %s: %w", m.id, len(crowd), m.target, m.err)
		}
	}
	return crowd, nil
}

// exercise uses the connection until ctx is done and then tests it: data sent after that
// moment must arrive, in each direction of its kind. It returns the longest stall.
func (t TCP) exercise(ctx context.Context, c *Connection) (stall time.Duration, err error) {
	// Each message has its own deadline. After ctx is done, one deadline holds for the whole test.
	var mu sync.Mutex
	patient := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case ctx.Err() != nil:
		case d == 0:
			_ = c.SetDeadline(time.Time{})
		default:
			_ = c.SetDeadline(time.Now().Add(d))
		}
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		mu.Lock()
		defer mu.Unlock()
		_ = c.SetDeadline(time.Now().Add(cmp.Or(t.Grace, t.Patience)))
	})
	defer stop()

	switch c.Kind {
	case Idle: // no read before the end: the exchange also sees an earlier reset
		patient(0)
		<-ctx.Done()
		<-ended
		startedAt := time.Now()
		err := c.Exchange(0)
		return time.Since(startedAt), err
	case Busy:
		for last := false; !last; pause(ctx, t.Interval) {
			if last = ctx.Err() != nil; last {
				<-ended
			}
			startedAt := time.Now()
			patient(t.Patience)
			if err := c.Exchange(t.Line); err != nil {
				return stall, err
			}
			stall = max(stall, time.Since(startedAt))
		}
		return stall, nil
	case ClientPush:
		for ; ctx.Err() == nil; pause(ctx, t.Interval) {
			patient(t.Patience)
			if err := c.Send(0); err != nil {
				return 0, err
			}
		}
		<-ended
		return c.counted()
	}
	// Only messages sent after ctx was done prove that the connection works. The server sends
	// number n no earlier than n intervals after it answered.
	patient(0)
	last := time.Now()
	for enough := -1; enough < 0 || int(c.received) <= enough; last = time.Now() {
		if err := c.Receive(); err != nil {
			return stall, err
		}
		stall = max(stall, time.Since(last))
		if ctx.Err() != nil && enough < 0 {
			enough = int(time.Since(c.Opened)/t.Interval) + 2
		}
	}
	return stall, nil
}

func (r *TCPReport) judge(crowd []*member) {
	stalls := map[Kind][]time.Duration{}
	for _, m := range crowd {
		if r.Kinds[m.kind] == nil {
			r.Kinds[m.kind] = &KindReport{}
		}
		kind := r.Kinds[m.kind]
		kind.Connections++
		r.Servers[m.Server]++
		switch {
		case m.err == nil:
			r.Survivors++
			kind.Survivors++
			stalls[m.kind] = append(stalls[m.kind], m.stall)
			continue
		case errors.Is(m.err, os.ErrDeadlineExceeded) || errors.Is(m.err, syscall.ETIMEDOUT):
			r.Timeouts++
			kind.Timeouts++
		default:
			r.Resets++
			kind.Resets++
		}
		if len(r.Failures) < maxFailures {
			r.Failures = append(r.Failures, Failure{
				ID: m.id, Kind: m.kind, Local: m.conn.LocalAddr().String(), Target: m.target, Server: m.Server, Error: reason(m.err),
			})
		}
	}
	for kind, values := range stalls {
		r.Kinds[kind].Stall = Summarise(values)
	}
}

func reason(err error) string {
	if errors.Is(err, io.EOF) {
		return "the server closed the connection"
	}
	return err.Error()
}

// ParseKinds parses a list such as idle,busy. Empty and "all" mean all kinds.
func ParseKinds(text string) ([]Kind, error) {
	if text == "" || text == "all" {
		return Kinds(), nil
	}
	var out []Kind
	for _, name := range strings.Split(text, ",") {
		if !slices.Contains(Kinds(), Kind(name)) {
			return nil, fmt.Errorf("kind %q: one of idle, busy, client-push, server-push, or all", name)
		}
		out = append(out, Kind(name))
	}
	return out, nil
}
