package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// action is one line of the history of a round.
type action struct {
	at   time.Duration // since the start of the round
	took time.Duration
	text string
	err  error
}

// String returns the line of the history.
func (d action) String() string {
	text := fmt.Sprintf("%7.3fs (%4d ms)  %s", d.at.Seconds(), d.took.Milliseconds(), d.text)
	if d.err != nil {
		text += ": " + d.err.Error()
	}
	return text
}

// play injects the faults of a schedule and returns the actions in the order of their end. It
// returns after the end of every fault.
func (b *chaosLab) play(ctx context.Context, events []schedule.Event) []action {
	startedAt := time.Now()
	var mu sync.Mutex
	var history []action
	act := func(text string, do func() error) {
		at := time.Since(startedAt)
		err := do()
		mu.Lock()
		defer mu.Unlock()
		history = append(history, action{at: at, took: time.Since(startedAt) - at, text: text, err: err})
	}
	locks := &targetLocks{locked: map[string]bool{}}
	locks.freed = sync.NewCond(&locks.mu)
	var group sync.WaitGroup
	tracks := map[int][]schedule.Event{}
	for _, e := range events {
		tracks[e.Track] = append(tracks[e.Track], e)
	}
	for _, track := range tracks {
		group.Go(func() {
			for _, e := range track {
				time.Sleep(e.At - time.Since(startedAt))
				locks.acquire(e.Locks)
				rulesWritten := func() {}
				if schedule.CutsPower(e.Kind) {
					rulesWritten = b.unprotected.powerLost(e.Target)
				}
				act(strings.TrimSpace("begin "+e.Kind+" "+e.Target+" "+e.Value), func() error { return b.startFault(ctx, e) })
				// The planned time counts from the end of a slow start.
				time.Sleep(e.For)
				act(strings.TrimSpace("end   "+e.Kind+" "+e.Target), func() error { return b.endFault(ctx, e) })
				if schedule.CutsPower(e.Kind) {
					go awaitRules(ctx, b.node(e.Target), rulesWritten)
				}
				locks.release(e.Locks)
			}
		})
	}
	group.Wait()
	return history
}

// targetLocks prevents a late event from changing a target that another event uses.
type targetLocks struct {
	mu     sync.Mutex
	freed  *sync.Cond
	locked map[string]bool
}

func (l *targetLocks) acquire(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for slices.ContainsFunc(names, func(name string) bool { return l.locked[name] }) {
		l.freed.Wait()
	}
	for _, name := range names {
		l.locked[name] = true
	}
}

func (l *targetLocks) release(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		delete(l.locked, name)
	}
	l.freed.Broadcast()
}

func (b *chaosLab) startFault(ctx context.Context, e schedule.Event) error {
	k, ok := schedule.KindOf(e.Kind)
	if !ok {
		return fmt.Errorf("unknown kind %q", e.Kind)
	}
	switch k.Start {
	case schedule.Export:
		return b.commit(ctx, "add an export", string(b.text)+extraExport)
	case schedule.Join:
		return b.commit(ctx, "add a gateway", b.withGateway())
	case schedule.Drain:
		return b.drain(ctx, k.Start, e.Target)
	case schedule.Filter:
		return b.filter(ctx, k, e)
	default:
		return b.retry(ctx, func(ctx context.Context) error {
			return b.client.Fault(ctx, lab.Fault{Kind: k.Start, Target: e.Target, Side: k.Side, Direction: k.Direction, Value: e.Value})
		})
	}
}

// filter makes the switch drop frames with some sources at the port of a node, in both directions,
// as port security does.
func (b *chaosLab) filter(ctx context.Context, k schedule.Kind, e schedule.Event) error {
	sources := b.variant.prefixes(pods4, pods6)
	if e.Value == schedule.Clusters {
		sources = slices.Concat(slices.Collect(maps.Values(b.global))...)
	}
	for _, source := range sources {
		fault := lab.Fault{Kind: "block", Target: e.Target, Side: k.Side, Value: "from/" + source.String()}
		if err := b.retry(ctx, func(ctx context.Context) error { return b.client.Fault(ctx, fault) }); err != nil {
			return err
		}
	}
	return nil
}

// startTimeout bounds the start of an agent or a tunnel process, and a command of the lab, on
// a busy machine.
const startTimeout = time.Minute

// retry repeats do until it succeeds: it fails while a program is starting.
func (b *chaosLab) retry(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := do(ctx)
		if err == nil || !wait(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

func (b *chaosLab) endFault(ctx context.Context, e schedule.Event) error {
	k, _ := schedule.KindOf(e.Kind) // startFault found it
	switch k.End {
	case "":
		return nil
	case schedule.Revert:
		return b.commit(ctx, "restore the topology", string(b.text))
	case schedule.Undrain:
		return b.drain(ctx, k.End, e.Target)
	case "start-sync":
		cluster, _, _ := strings.Cut(e.Target, "/")
		return b.client.Fault(ctx, lab.Fault{Kind: k.End, Target: cluster})
	default:
		// The agent may be replacing a tunnel process that was frozen for long.
		return b.retry(ctx, func(ctx context.Context) error {
			return b.client.Fault(ctx, lab.Fault{Kind: k.End, Target: e.Target, Side: k.Side})
		})
	}
}

// extraExport is the export that a commit adds to the topology and a later one removes.
const extraExport = `  - name: extra
    namespace: shop
    clusters: [g1, g3]
    ports: [{name: tcp, port: 8001, protocol: TCP}]
`

// extraNumber is the host number in the endpoint of the gateway that a commit adds to g2.
const extraNumber = "24"

// extraNode is its node.
const extraNode = "g2/g2-d"

// withGateway returns the topology with one more gateway, before the gateways of g2.
func (b *chaosLab) withGateway() string {
	const first = "    gateways:\n    - name: g2-a\n"
	more := "    gateways:\n    - name: g2-d\n      node: g2-d\n      endpoints: " + list(b.variant.endpoints(extraNumber)) + "\n    - name: g2-a\n"
	return strings.Replace(string(b.text), first, more, 1)
}

// drain runs hawser-agent drain or undrain on a node. It does not wait for the end of the
// drain: faults on a draining gateway are part of the test.
func (b *chaosLab) drain(ctx context.Context, command, node string) error {
	args := []string{command, "--socket", filepath.Join(b.node(node).Dir, "run", "agent.sock")}
	if command == schedule.Drain {
		args = append(args, "--wait", "0")
	}
	return b.retry(ctx, func(ctx context.Context) error {
		_, err := output(b.command(ctx, filepath.Join(b.bin, "hawser-agent"), args...))
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 1 { // still in use
			return nil
		}
		return err
	})
}

// commit writes and commits the topology, as a user would.
func (b *chaosLab) commit(ctx context.Context, message, text string) error {
	if err := os.WriteFile(b.topologyFile(), []byte(text), 0o644); err != nil {
		return fmt.Errorf("change the topology: %w", err)
	}
	_, err := output(b.command(ctx, "git", "-C", b.repo(), "commit", "-q", "-a", "--allow-empty", "-m", message))
	return err
}

// recovery is the recovery of one flow.
type recovery struct {
	name      string
	took      time.Duration // since the last heal
	err       error         // set if the flow was late
	recovered bool          // the flow recovered, in time or late
}

func (r recovery) end() string {
	if r.recovered {
		return fmt.Sprintf("back after %.1fs", r.took.Seconds())
	}
	return fmt.Sprintf("not back after %.0fs", r.took.Seconds())
}

// recover waits for every flow. A new flow is late when soon is done, a long-lived one when
// soonLongLived is done. recover waits for a late flow until reallyLate, to distinguish late
// from never.
func (s *trafficSet) recover(soon, soonLongLived context.Context, healed time.Time) []recovery {
	out := make([]recovery, len(s.flows))
	var group sync.WaitGroup
	for i, f := range s.flows {
		group.Go(func() {
			limit := soon
			if _, ok := f.(*longLived); ok {
				limit = soonLongLived
			}
			r := recovery{name: f.String(), recovered: true}
			if r.err = f.awaitRecovery(limit); r.err != nil {
				long, cancel := context.WithTimeout(context.WithoutCancel(soon), reallyLate)
				defer cancel()
				r.recovered = f.awaitRecovery(long) == nil
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
