package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"hawser.dev/hawser/e2e/chaos/schedule"
	"hawser.dev/hawser/e2e/traffic"
	"hawser.dev/hawser/lab/netnsexec"
	"hawser.dev/hawser/nodeagent/round/roundtest"
)

const (
	// back is how long after the last heal everything must work again.
	back = 2 * time.Second
	// heldMore is what TCP may wait on top before it repeats what was lost; see
	// the package traffic.
	heldMore = time.Second
	// reallyLate ends the wait for what is late already: it tells late from never.
	reallyLate = 8 * time.Second
	// ready is how long agents may take to have all that is published.
	ready = 15 * time.Second
	// settle is how long everything may take at the very begin.
	settle = 60 * time.Second
)

// chaos is a run.
type chaos struct {
	*chaosLab
	out      io.Writer
	ledger   *violationLog
	scene    *trafficSet
	captures captures
	foreign  *foreign
	answers  answers
	first    map[netnsexec.Process]usage // of the witnesses after the first round
	sum      summary
}

// run does all rounds, or one, and fails when anything was violated.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	b, err := newBed(ctx, o)
	if err != nil {
		return err
	}
	violated := 0
	defer func() {
		if o.keep && violated > 0 {
			fmt.Fprintf(out, "the lab is left in %s\n", b.labDir())
			return
		}
		err = errors.Join(err, b.close())
	}()
	c := &chaos{chaosLab: b, out: out, ledger: newLedger(), foreign: &foreign{bed: b}, sum: newSummary()}
	if c.scene, err = newScene(ctx, b, c.ledger); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.scene.close()) }()
	if c.captures, err = c.scene.watch(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.captures.close()) }()
	undo := traffic.RaisePriority()
	defer func() { err = errors.Join(err, undo()) }()
	stop := c.traffic(ctx)
	defer stop()
	if err := c.prepare(ctx); err != nil {
		return errors.Join(err, c.keepEvidence(ctx, 0, err.Error()+"\n", nil))
	}
	recorded := c.recording(ctx)
	violated, err = c.rounds(ctx)
	if err = errors.Join(err, recorded()); err != nil {
		return err
	}
	c.sum.print(out, c)
	if violated > 0 {
		return &violatedError{safety: c.sum.violations[safety], late: c.sum.violations[late], evidence: c.evidence}
	}
	return nil
}

// violatedError says that a run found something.
type violatedError struct {
	safety, late int
	evidence     string
}

func (e *violatedError) Error() string {
	return fmt.Sprintf("violated: safety %d, late %d: see above, and %s", e.safety, e.late, e.evidence)
}

// traffic starts all of it; stop ends it.
func (c *chaos) traffic(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	for _, f := range c.scene.flows {
		group.Go(func() { f.run(ctx) })
	}
	for _, r := range c.scene.refused {
		group.Go(func() { r.run(ctx) })
	}
	return func() { cancel(); group.Wait() }
}

// prepare waits until everything works, and notes how it is.
func (c *chaos) prepare(ctx context.Context) error {
	var ids []string
	for _, n := range c.topology.Nodes {
		ids = append(ids, n.ID)
	}
	if err := c.foreign.plant(ctx, ids...); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	var err error
	if c.answers, err = c.scene.settle(limit); err != nil {
		return err
	}
	for _, r := range c.scene.recover(limit, limit, time.Now()) {
		if r.err != nil {
			return fmt.Errorf("before the first fault: %w", r.err)
		}
	}
	return nil
}

func (c *chaos) rounds(ctx context.Context) (violated int, err error) {
	if found, notes := c.ledger.take(); len(found) > 0 {
		now := time.Now()
		violated += len(found)
		c.sum.count(found)
		if err := c.tell(ctx, 0, account(now, now, nil, append(notes, found...)), nil); err != nil {
			return violated, err
		}
	}
	for round := 1; round <= c.options.rounds(); round++ {
		if c.options.round != 0 && c.options.round != round {
			continue
		}
		found, err := c.one(ctx, round)
		violated += len(found)
		if err != nil {
			return violated, err
		}
	}
	return violated, nil
}

// one runs a round and gives what was violated in it.
func (c *chaos) one(ctx context.Context, round int) ([]violation, error) {
	logs := map[string]int64{} // how long each was before, so that the part of the round can be kept
	for _, n := range c.status.Nodes {
		path := filepath.Join(n.Dir, "agent.log")
		if info, err := os.Stat(path); err == nil {
			logs[path] = info.Size()
		}
	}
	events := schedule.Round(c.seed, round, c.size(round), c.topology)
	began := time.Now()
	history := c.play(ctx, events)
	healed := time.Now()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	recovered := c.check(ctx, healed, events)
	for _, h := range history {
		if h.err != nil {
			// Nothing of the product: the machine, for the most part.
			c.ledger.add(late, "the lab failed: %v", h)
		}
	}
	found, notes := c.ledger.take()
	c.sum.rounds++
	c.sum.broken += healed.Sub(began)
	for _, e := range events {
		c.sum.faults[e.Kind]++
	}
	for _, r := range recovered {
		c.sum.recoveries = append(c.sum.recoveries, r.took)
	}
	c.sum.count(found)
	fmt.Fprintf(c.out, "round %d: %d faults in %.1fs, all back after %.2fs (%s), %d violations\n",
		round, len(events), healed.Sub(began).Seconds(), slowest(recovered).took.Seconds(), slowest(recovered).name, len(found))
	if len(found) == 0 {
		return nil, nil
	}
	return found, c.tell(ctx, round, account(began, healed, history, append(notes, found...)), logs)
}

// check waits for everything to be back and compares it with the begin.
func (c *chaos) check(ctx context.Context, healed time.Time, events []schedule.Event) []recovery {
	slow := func(d time.Duration) time.Duration { return time.Duration(float64(d) * c.slow) }
	soon, cancel := context.WithDeadline(ctx, healed.Add(slow(back)))
	defer cancel()
	soonHeld, cancelHeld := context.WithDeadline(ctx, healed.Add(slow(back+heldMore)))
	defer cancelHeld()
	var recovered []recovery
	var group sync.WaitGroup
	group.Go(func() { recovered = c.scene.recover(soon, soonHeld, healed) })
	group.Go(func() { c.scene.unchanged(soon, c.answers) })
	group.Wait()
	for _, r := range recovered {
		if r.err != nil {
			c.ledger.add(late, "%v; %s", r.err, r.end())
		}
	}
	until, cancelReady := context.WithTimeout(ctx, slow(ready))
	defer cancelReady()
	if err := c.awaitReady(until); err != nil {
		c.ledger.add(late, "agents: %v", err)
	}
	c.scene.allocations(ctx)
	c.checkForeign(ctx, events)
	c.checkMemory(ctx)
	if lost, err := c.captures.lost(); err != nil || lost > 0 {
		c.ledger.add(late, "the capture missed %d frames (%v): it proves nothing of this round", lost, err)
	}
	return recovered
}

func (c *chaos) awaitReady(ctx context.Context) error {
	var last error
	for {
		err := c.ready(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil && last != nil {
			return last // says more than that the time is over
		}
		if last = err; !wait(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// checkForeign compares what was planted; a node that lost its power has none of
// it and gets it again.
func (c *chaos) checkForeign(ctx context.Context, events []schedule.Event) {
	var kept, lost []string
	for _, n := range c.topology.Nodes {
		off := slices.ContainsFunc(events, func(e schedule.Event) bool { return e.Target == n.ID && schedule.TakesPower(e.Kind) })
		if off {
			lost = append(lost, n.ID)
		} else {
			kept = append(kept, n.ID)
		}
	}
	for _, text := range c.foreign.check(ctx, kept...) {
		c.ledger.add(safety, "%s", text)
	}
	if err := c.foreign.plant(ctx, lost...); err != nil {
		c.ledger.add(safety, "%v", err)
	}
}

func (c *chaos) checkMemory(ctx context.Context) {
	now, err := c.witnesses(ctx)
	switch {
	case err != nil:
		c.ledger.add(safety, "measure memory: %v", err)
	case c.first == nil:
		c.first = now
	default:
		for _, text := range grown(c.first, now) {
			c.ledger.add(safety, "%s", text)
		}
	}
	c.sum.memory = now
}

// recording writes down what agents see until its end, for tests that make the same rounds
// again; nothing without -record.
func (c *chaos) recording(ctx context.Context) (end func() error) {
	if c.record == "" {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	names := strings.Split(c.nodes, ",")
	errs := make([]error, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() {
			r, err := roundtest.Record(ctx, filepath.Join(c.labDir(), "nodes", name))
			if err == nil && len(r.Moments) == 0 {
				err = fmt.Errorf("record %s: its agent never answered", name)
			}
			if err == nil {
				err = r.Write(filepath.Join(c.record, fmt.Sprintf("chaos-%s-%s-%s.json.gz", c.variant.shape, c.variant.family, name)))
			}
			errs[i] = err
		})
	}
	return func() error {
		cancel()
		group.Wait()
		return errors.Join(errs...)
	}
}
