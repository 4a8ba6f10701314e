package flow

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// New opens new TCP connections at a rate; each is answered by the server with
// its name, and closed.
type New struct {
	Target  string        // HOST:PORT
	Rate    int           // connections a second, 1..10000
	Count   int           // ends after so many; 0 = with the context
	Timeout time.Duration // of one connection; 0 = 3s
	Slow    time.Duration // from here on a connection counts as slow
	Dial    Dialer        // nil = Plain
	Ready   func()        // is called at the first success; may be nil
	Log     io.Writer     // gets every attempt as a line of JSON; may be nil
}

// Attempt is one connection.
type Attempt struct {
	At     time.Time `json:"at"`   // when it began
	Long   Millis    `json:"long"` // until the answer, or the failure
	Server string    `json:"server,omitempty"`
	Error  string    `json:"error,omitempty"`
}

// NewReport is what became of the attempts.
type NewReport struct {
	Target     string         `json:"target"`
	Began      time.Time      `json:"began"`
	Lasted     Millis         `json:"lasted"`
	Attempts   int            `json:"attempts"`
	Failed     int            `json:"failed"`
	Slow       int            `json:"slow"`
	Took       Spread         `json:"took"` // of those that were answered
	Servers    map[string]int `json:"servers"`
	FirstError *Attempt       `json:"firstError,omitempty"`
	LastError  *Attempt       `json:"lastError,omitempty"`
}

// Run opens connections until ctx ends and waits for those under way.
func (n New) Run(ctx context.Context) (NewReport, error) {
	if n.Rate < 1 || n.Rate > 10_000 {
		return NewReport{}, fmt.Errorf("rate %d: from 1 to 10000 connections a second", n.Rate)
	}
	n.Timeout = cmp.Or(n.Timeout, 3*time.Second)
	if err := RaiseFiles(uint64(n.Rate)*uint64(n.Timeout/time.Second+1)+256, 256); err != nil {
		return NewReport{}, err
	}
	r := &newRun{New: n, report: NewReport{Target: n.Target, Began: time.Now(), Servers: map[string]int{}}}
	var group sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(n.Rate))
	defer tick.Stop()
	for count := 0; ctx.Err() == nil && (n.Count == 0 || count < n.Count); count++ {
		group.Go(func() { r.note(n.attempt(count)) })
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	group.Wait()
	r.report.Took = Summarise(r.took)
	r.report.Lasted = Millis(time.Since(r.report.Began))
	return r.report, r.logFailed
}

type newRun struct {
	New
	mu        sync.Mutex
	report    NewReport
	took      []time.Duration
	logFailed error
}

// attempt is not ended by the end of the measurement.
func (n New) attempt(id int) Attempt {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), n.Timeout)
	defer cancel()
	server, err := n.ask(ctx, id)
	out := Attempt{At: began, Long: Millis(time.Since(began)), Server: server}
	if err != nil {
		out.Error = reason(err)
	}
	return out
}

func (n New) ask(ctx context.Context, id int) (string, error) {
	conn, err := n.Dial.orPlain()(ctx, "tcp", n.Target)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := fmt.Fprintf(conn, "new %d 1s\n", id); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

func (r *newRun) note(a Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Attempts++
	switch {
	case a.Error != "":
		r.report.Failed++
		r.failed(a)
	default:
		if r.report.Servers[a.Server]++; len(r.took) == 0 && r.Ready != nil {
			r.Ready()
		}
		r.took = append(r.took, time.Duration(a.Long))
		if r.New.Slow > 0 && time.Duration(a.Long) >= r.New.Slow {
			r.report.Slow++
		}
	}
	if r.Log != nil {
		if err := json.NewEncoder(r.Log).Encode(a); err != nil && r.logFailed == nil {
			r.logFailed = fmt.Errorf("log attempts: %w", err)
		}
	}
}

// failed keeps the first and the last failure by their beginnings.
func (r *newRun) failed(a Attempt) {
	if r.report.FirstError == nil || a.At.Before(r.report.FirstError.At) {
		r.report.FirstError = &a
	}
	if r.report.LastError == nil || a.At.After(r.report.LastError.At) {
		r.report.LastError = &a
	}
}
