package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"hawser.dev/hawser/e2e/chaos/schedule"
	"hawser.dev/hawser/lab"
)

// action is one thing that was done, for the history.
type action struct {
	at   time.Duration // after the begin of the round
	took time.Duration
	text string
	err  error
}

// String gives one line of the history.
func (d action) String() string {
	text := fmt.Sprintf("%7.3fs (%4d ms)  %s", d.at.Seconds(), d.took.Milliseconds(), d.text)
	if d.err != nil {
		text += ": " + d.err.Error()
	}
	return text
}

// play carries a schedule out and gives what was done, in the order of its end.
// Every fault is mended when it returns.
func (b *chaosLab) play(ctx context.Context, events []schedule.Event) []action {
	began := time.Now()
	var mu sync.Mutex
	var history []action
	act := func(text string, do func() error) {
		at := time.Since(began)
		err := do()
		mu.Lock()
		defer mu.Unlock()
		history = append(history, action{at: at, took: time.Since(began) - at, text: text, err: err})
	}
	taken := &holds{taken: map[string]bool{}}
	taken.freed = sync.NewCond(&taken.mu)
	var group sync.WaitGroup
	lanes := map[int][]schedule.Event{}
	for _, e := range events {
		lanes[e.Lane] = append(lanes[e.Lane], e)
	}
	for _, lane := range lanes {
		group.Go(func() {
			for _, e := range lane {
				time.Sleep(e.At - time.Since(began))
				taken.take(e.Holds)
				act(strings.TrimSpace("begin "+e.Kind+" "+e.Target+" "+e.Value), func() error { return b.begin(ctx, e) })
				// What takes long to begin is still in force for as long as planned.
				time.Sleep(e.For)
				act(strings.TrimSpace("end   "+e.Kind+" "+e.Target), func() error { return b.end(ctx, e) })
				taken.release(e.Holds)
			}
		})
	}
	group.Wait()
	return history
}

// holds keeps events that run late from touching what another one has.
type holds struct {
	mu    sync.Mutex
	freed *sync.Cond
	taken map[string]bool
}

func (h *holds) take(names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for slices.ContainsFunc(names, func(name string) bool { return h.taken[name] }) {
		h.freed.Wait()
	}
	for _, name := range names {
		h.taken[name] = true
	}
}

func (h *holds) release(names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		delete(h.taken, name)
	}
	h.freed.Broadcast()
}

func (b *chaosLab) begin(ctx context.Context, e schedule.Event) error {
	k, known := schedule.KindOf(e.Kind)
	if !known {
		return fmt.Errorf("unknown kind %q", e.Kind)
	}
	switch k.Begin {
	case schedule.Export:
		return b.commit(ctx, "an export comes", string(b.text)+extraExport)
	case schedule.Join:
		return b.commit(ctx, "a gateway comes", b.withGateway())
	case schedule.Drain:
		return b.drain(ctx, k.Begin, e.Target)
	default:
		return b.insist(ctx, func(ctx context.Context) error {
			return b.client.Fault(ctx, lab.Fault{Kind: k.Begin, Target: e.Target, Side: k.Side, Direction: k.Direction, Value: e.Value})
		})
	}
}

// patience is how long an agent or a tunnel process that has just been started
// may take to be there, and the lab to do something, on a machine that is busy.
const patience = time.Minute

// insist repeats what fails because of a program that does not run yet.
func (b *chaosLab) insist(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := do(ctx)
		if err == nil || !wait(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

func (b *chaosLab) end(ctx context.Context, e schedule.Event) error {
	k, _ := schedule.KindOf(e.Kind) // known: it began
	switch k.End {
	case "":
		return nil
	case schedule.Revert:
		return b.commit(ctx, "and goes", string(b.text))
	case schedule.Undrain:
		return b.drain(ctx, k.End, e.Target)
	case "start-sync":
		cluster, _, _ := strings.Cut(e.Target, "/")
		return b.client.Fault(ctx, lab.Fault{Kind: k.End, Target: cluster})
	default:
		// A tunnel process that was frozen for long is just being replaced, perhaps.
		return b.insist(ctx, func(ctx context.Context) error {
			return b.client.Fault(ctx, lab.Fault{Kind: k.End, Target: e.Target, Side: k.Side})
		})
	}
}

// extraExport is what a commit adds to the topology and a later one takes away.
const extraExport = `  - name: extra
    namespace: shop
    clusters: [g1, g3]
    ports: [{name: tcp, port: 8001, protocol: TCP}]
`

// extraNumber is that of the endpoint of the gateway that a commit adds to g2.
const extraNumber = "24"

// withGateway gives the topology with a gateway more, before those that g2 has.
func (b *chaosLab) withGateway() string {
	const first = "    gateways:\n    - name: g2-a\n"
	more := "    gateways:\n    - name: g2-d\n      node: g2-d\n      endpoints: " + list(b.variant.endpoints(extraNumber)) + "\n    - name: g2-a\n"
	return strings.Replace(string(b.text), first, more, 1)
}

// drain tells an agent to drain its gateway, or to take it back into use. What is
// still in use goes on: the next thing that happens to it is part of the test.
func (b *chaosLab) drain(ctx context.Context, command, node string) error {
	args := []string{command, "--socket", b.socket(node)}
	if command == schedule.Drain {
		args = append(args, "--wait", "0")
	}
	return b.insist(ctx, func(ctx context.Context) error {
		_, err := output(b.command(ctx, filepath.Join(b.bin, "hawser-agent"), args...))
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 1 { // still in use
			return nil
		}
		return err
	})
}

// commit writes the topology, as a person would.
func (b *chaosLab) commit(ctx context.Context, message, text string) error {
	if err := os.WriteFile(b.topologyFile(), []byte(text), 0o644); err != nil {
		return fmt.Errorf("change the topology: %w", err)
	}
	_, err := output(b.command(ctx, "git", "-C", b.repo(), "commit", "-q", "-a", "--allow-empty", "-m", message))
	return err
}

// recovery is how one flow came back.
type recovery struct {
	name string
	took time.Duration // after the last heal
	err  error         // it was late
	back bool          // but it came
}

func (r recovery) end() string {
	if r.back {
		return fmt.Sprintf("back after %.1fs", r.took.Seconds())
	}
	return fmt.Sprintf("not back after %.0fs", r.took.Seconds())
}

// recover waits for every flow; soon and soonHeld end when they are late. What is
// late is waited for nevertheless, to tell late from never.
func (s *trafficSet) recover(soon, soonHeld context.Context, healed time.Time) []recovery {
	out := make([]recovery, len(s.flows))
	var group sync.WaitGroup
	for i, f := range s.flows {
		group.Go(func() {
			limit := soon
			if _, isHeld := f.(*longLived); isHeld {
				limit = soonHeld
			}
			r := recovery{name: f.String(), back: true}
			if r.err = f.back(limit); r.err != nil {
				long, cancel := context.WithTimeout(context.WithoutCancel(soon), reallyLate)
				defer cancel()
				r.back = f.back(long) == nil
			}
			r.took = time.Since(healed)
			out[i] = r
		})
	}
	group.Wait()
	return out
}

func slowest(all []recovery) recovery {
	var out recovery
	for _, r := range all {
		if r.took > out.took {
			out = r
		}
	}
	return out
}
