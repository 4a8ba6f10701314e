package flow

import (
	"bufio"
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
	Interval time.Duration // between two lines of a connection that speaks
	Line     int           // bytes of a line of a busy connection at least
	Patience time.Duration // a connection that carries nothing for so long is dead
	Open     time.Duration // in which all must be open; each is tried again meanwhile
	Dial     Dialer        // nil = Plain
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
	began := time.Now()
	links, err := t.open(ctx)
	defer func() {
		for _, l := range links {
			if l.conn != nil {
				_ = l.conn.Close()
			}
		}
	}()
	if err != nil {
		return TCPReport{}, err
	}
	report := t.report(began, links)
	report.Opened = Millis(time.Since(began))
	var group sync.WaitGroup
	for _, l := range links {
		group.Go(func() {
			// Those that speak do not all speak at once.
			pause(ctx, t.Interval*time.Duration(l.id%64)/64)
			l.err = l.hold(ctx, t.Interval, t.Patience, t.Line)
		})
	}
	if t.Ready != nil {
		t.Ready()
	}
	group.Wait()
	report.judge(links)
	report.Lasted = Millis(time.Since(began))
	return report, nil
}

// open opens the connections, each for as long as it takes within t.Open.
func (t TCP) open(ctx context.Context) ([]*link, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(t.Open, 20*time.Second))
	defer cancel()
	links := make([]*link, t.Count)
	next := make(chan *link)
	var group sync.WaitGroup
	for range openers {
		group.Go(func() {
			for l := range next {
				for {
					if l.err = t.greet(ctx, l); l.err == nil || ctx.Err() != nil {
						break
					}
					pause(ctx, 50*time.Millisecond)
				}
			}
		})
	}
	for i := range links {
		links[i] = &link{id: i, kind: t.Kinds[i%len(t.Kinds)], target: t.Targets[(i/len(t.Kinds))%len(t.Targets)]}
		next <- links[i]
	}
	close(next)
	group.Wait()
	for _, l := range links {
		if l.err != nil {
			return links, fmt.Errorf("open connection %d of %d to %s: %w", l.id, len(links), l.target, l.err)
		}
	}
	return links, nil
}

// greet opens one connection and says what it is for.
func (t TCP) greet(ctx context.Context, l *link) error {
	attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := t.Dial.orPlain()(attempt, "tcp", l.target)
	if err != nil {
		return err
	}
	l.conn, l.lines = conn, bufio.NewReader(conn)
	err = l.write(fmt.Sprintf("%s %d %s", l.kind, l.id, t.Interval), 3*time.Second)
	if err == nil {
		l.server, err = l.read(3 * time.Second)
		l.opened = time.Now()
	}
	if err != nil {
		_ = conn.Close()
		l.conn = nil
	}
	return err
}

func (t TCP) report(began time.Time, links []*link) TCPReport {
	out := TCPReport{
		Targets: t.Targets, Began: began, Connections: len(links),
		Kinds: map[Kind]*KindReport{}, Servers: map[string]int{}, Failures: []Failure{},
	}
	for _, l := range links {
		if out.Kinds[l.kind] == nil {
			out.Kinds[l.kind] = &KindReport{}
		}
		out.Kinds[l.kind].Connections++
		out.Servers[l.server]++
	}
	return out
}

func (r *TCPReport) judge(links []*link) {
	stalls := map[Kind][]time.Duration{}
	for _, l := range links {
		kind := r.Kinds[l.kind]
		switch {
		case l.err == nil:
			r.Survivors++
			kind.Survivors++
			stalls[l.kind] = append(stalls[l.kind], l.stall)
			continue
		case errors.Is(l.err, os.ErrDeadlineExceeded) || errors.Is(l.err, syscall.ETIMEDOUT):
			r.Timeouts++
			kind.Timeouts++
		default:
			r.Resets++
			kind.Resets++
		}
		if len(r.Failures) < mostFailures {
			r.Failures = append(r.Failures, Failure{
				ID: l.id, Kind: l.kind, Local: l.conn.LocalAddr().String(), Target: l.target, Server: l.server, Error: reason(l.err),
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
