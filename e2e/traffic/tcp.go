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

// TCP is a crowd of connections that are kept and then proven to live.
type TCP struct {
	Targets  []string      // HOST:PORT each; connections take them in turn
	Count    int           // connections in all; they take the kinds in turn
	Kinds    []Kind        // empty = all
	Interval time.Duration // between two messages of a connection that speaks
	Line     int           // bytes of a message of a busy connection at least
	Patience time.Duration // a connection that carries nothing for so long is dead
	Grace    time.Duration // in which each is proven in the end; 0 = Patience
	Open     time.Duration // in which all must be open; each is tried again meanwhile
	Reset    bool          // they end with resets, so that their ports are free at once
	Dial     Dialer        // nil = from where the process is
	Ready    func()        // is called when all are open; may be nil
}

// TCPReport says which connections still lived in the end.
type TCPReport struct {
	Targets     []string             `json:"targets"`
	Began       time.Time            `json:"began"`
	Opened      Millis               `json:"opened"` // how long it took to open all
	Lasted      Millis               `json:"lasted"`
	Connections int                  `json:"connections"`
	Survivors   int                  `json:"survivors"`
	Resets      int                  `json:"resets"`   // ended by RST, FIN or ICMP
	Timeouts    int                  `json:"timeouts"` // carried nothing for the whole patience
	Kinds       map[Kind]*KindReport `json:"kinds"`
	Servers     map[string]int       `json:"servers"`  // connections by server
	Failures    []Failure            `json:"failures"` // the first mostFailures
}

// KindReport is the part of one kind.
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
	// mostFailures bounds the list of a report.
	mostFailures = 50
	// openers open connections at the same time.
	openers = 32
)

// Run opens all connections, keeps them until ctx ends and proves them. An error
// means that not all could be opened.
func (t TCP) Run(ctx context.Context) (TCPReport, error) {
	if len(t.Kinds) == 0 {
		t.Kinds = Kinds()
	}
	if t.Count < 1 || len(t.Targets) == 0 || t.Interval <= 0 || t.Patience <= 0 {
		return TCPReport{}, errors.New("crowd of connections: it needs a target, a count, an interval and a patience")
	}
	if err := RaiseFiles(uint64(2*t.Count+256), uint64(t.Count+64)); err != nil {
		return TCPReport{}, err
	}
	report := TCPReport{
		Targets: t.Targets, Began: time.Now(), Connections: t.Count,
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
	report.Opened = Millis(time.Since(report.Began))
	var group sync.WaitGroup
	for _, m := range crowd {
		group.Go(func() {
			// Those that speak do not all speak at once.
			pause(ctx, t.Interval*time.Duration(m.id%64)/64)
			m.stall, m.err = t.hold(ctx, m.Connection)
		})
	}
	if t.Ready != nil {
		t.Ready()
	}
	group.Wait()
	report.judge(crowd)
	report.Lasted = Millis(time.Since(report.Began))
	return report, nil
}

// member is one connection of the crowd.
type member struct {
	*Connection
	id     int
	kind   Kind
	target string
	stall  time.Duration // the longest time between two signs of life
	err    error
}

// open opens the connections, each for as long as it takes within t.Open.
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

// hold carries on until ctx ends and then proves that the connection lives: data that was
// sent after that moment arrives, each way in which it flows. It gives the longest stall.
func (t TCP) hold(ctx context.Context, c *Connection) (stall time.Duration, err error) {
	// From the end on all has one deadline; before it, each sign of life has its own.
	var mu sync.Mutex
	patient := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case ctx.Err() != nil:
		case d == 0:
			_ = c.Within(time.Time{})
		default:
			_ = c.Within(time.Now().Add(d))
		}
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		mu.Lock()
		defer mu.Unlock()
		_ = c.Within(time.Now().Add(cmp.Or(t.Grace, t.Patience)))
	})
	defer stop()

	switch c.Kind {
	case Idle: // it is not read from: an end that the network sends is seen by the exchange
		patient(0)
		<-ctx.Done()
		<-ended
		began := time.Now()
		err := c.Exchange(0)
		return time.Since(began), err
	case Busy:
		for last := false; !last; pause(ctx, t.Interval) {
			if last = ctx.Err() != nil; last {
				<-ended
			}
			began := time.Now()
			patient(t.Patience)
			if err := c.Exchange(t.Line); err != nil {
				return stall, err
			}
			stall = max(stall, time.Since(began))
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
	// What may have been on its way when ctx ended is no proof: the server sends number n
	// no earlier than n intervals after it answered.
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
		if len(r.Failures) < mostFailures {
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
		return "the server closed it"
	}
	return err.Error()
}

// ParseKinds reads a list such as idle,busy; empty or "all" = all.
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
