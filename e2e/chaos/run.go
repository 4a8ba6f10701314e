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
	// recoveryTimeout bounds the recovery of every flow after the last heal.
	recoveryTimeout = 2 * time.Second
	// tcpExtra is the additional time for long-lived TCP connections: TCP may wait this time
	// before a retransmission (traffic.Socket.RetryAtMost).
	tcpExtra = time.Second
	// reallyLate bounds the additional wait for late flows, to distinguish late from never.
	reallyLate = 8 * time.Second
	// readyTimeout bounds the time until all agents have the published configuration.
	readyTimeout = 15 * time.Second
	// initialTimeout bounds the time until everything works before the first round.
	initialTimeout = 60 * time.Second
)

// chaos is one run.
type chaos struct {
	*chaosLab
	out        io.Writer
	log        *violationLog
	trafficSet *trafficSet
	captures   captures
	foreign    *foreign
	answers    answers
	first      map[netnsexec.Process]usage // of the unkilled processes after the first round
	sum        summary
}

// run runs all rounds, or one, and fails on a violation.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	b, err := newChaosLab(ctx, o)
	if err != nil {
		return err
	}
	violated := 0
	defer func() {
		if o.keepLab && violated > 0 {
			fmt.Fprintf(out, "the lab keeps running in %s\n", b.labDir())
			return
		}
		err = errors.Join(err, b.close())
	}()
	c := &chaos{chaosLab: b, out: out, log: newViolationLog(), foreign: &foreign{lab: b}, sum: newSummary()}
	if c.trafficSet, err = newTrafficSet(ctx, b, c.log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.trafficSet.close()) }()
	if c.captures, err = c.trafficSet.startCaptures(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.captures.close()) }()
	undo := traffic.RaisePriority()
	defer func() { err = errors.Join(err, undo()) }()
	stop := c.traffic(ctx)
	defer stop()
	if err := c.prepare(ctx); err != nil {
		return errors.Join(err, c.saveEvidence(ctx, 0, err.Error()+"\n", nil))
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

// violatedError reports that a run found violations.
type violatedError struct {
	safety, late int
	evidence     string
}

func (e *violatedError) Error() string {
	return fmt.Sprintf("violated: safety %d, late %d: see above, and %s", e.safety, e.late, e.evidence)
}

// traffic starts all traffic; stop ends it.
func (c *chaos) traffic(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	for _, f := range c.trafficSet.flows {
		group.Go(func() { f.run(ctx) })
	}
	for _, r := range c.trafficSet.refused {
		group.Go(func() { r.run(ctx) })
	}
	return func() { cancel(); group.Wait() }
}

// prepare waits until everything works, and records the initial DNS answers.
func (c *chaos) prepare(ctx context.Context) error {
	var ids []string
	for _, n := range c.topology.Nodes {
		ids = append(ids, n.ID)
	}
	if err := c.foreign.create(ctx, ids...); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, initialTimeout)
	defer cancel()
	var err error
	if c.answers, err = c.trafficSet.awaitAnswers(limit); err != nil {
		return err
	}
	for _, r := range c.trafficSet.recover(limit, limit, time.Now()) {
		if r.err != nil {
			return fmt.Errorf("before the first fault: %w", r.err)
		}
	}
	for {
		direct, all, err := c.directPaths(limit)
		if err == nil && direct == all {
			return nil
		}
		if !wait(limit, 100*time.Millisecond) {
			return errors.Join(fmt.Errorf("before the first fault: %d of %d paths between nodes are direct", direct, all), err)
		}
	}
}

func (c *chaos) rounds(ctx context.Context) (violated int, err error) {
	if found, notes := c.log.drain(); len(found) > 0 {
		now := time.Now()
		violated += len(found)
		c.sum.count(found)
		if err := c.reportViolations(ctx, 0, account(now, now, nil, append(notes, found...)), nil); err != nil {
			return violated, err
		}
	}
	for round := 1; round <= c.options.rounds(); round++ {
		if c.options.round != 0 && c.options.round != round {
			continue
		}
		found, err := c.runRound(ctx, round)
		violated += len(found)
		if err != nil {
			return violated, err
		}
	}
	return violated, nil
}

// runRound runs a round and returns its violations.
func (c *chaos) runRound(ctx context.Context, round int) ([]violation, error) {
	logs := map[string]int64{} // length of each log before the round, to save only the round's part
	for _, n := range c.status.Nodes {
		path := filepath.Join(n.Dir, "agent.log")
		if info, err := os.Stat(path); err == nil {
			logs[path] = info.Size()
		}
	}
	direct, all, err := c.directPaths(ctx)
	if err != nil {
		return nil, err
	}
	events := schedule.Round(c.seed, round, c.size(round), c.topology)
	startedAt := time.Now()
	history := c.play(ctx, events)
	healed := time.Now()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	recovered := c.check(ctx, healed, events)
	for _, h := range history {
		if h.err != nil {
			// Not Hawser's fault: usually the machine's.
			c.log.add(late, "the lab failed: %v", h)
		}
	}
	found, notes := c.log.drain()
	c.sum.rounds++
	c.sum.broken += healed.Sub(startedAt)
	for _, e := range events {
		c.sum.faults[e.Kind]++
	}
	for _, r := range recovered {
		c.sum.recoveries = append(c.sum.recoveries, r.took)
	}
	c.sum.count(found)
	fmt.Fprintf(c.out, "round %d: %d of %d paths between nodes direct; %d faults in %.1fs, all recovered after %.2fs (%s), %d violations\n",
		round, direct, all, len(events), healed.Sub(startedAt).Seconds(), slowest(recovered).took.Seconds(), slowest(recovered).name, len(found))
	if len(found) == 0 {
		return nil, nil
	}
	return found, c.reportViolations(ctx, round, account(startedAt, healed, history, append(notes, found...)), logs)
}

// check waits for the recovery of every flow, and compares the state with the initial one.
func (c *chaos) check(ctx context.Context, healed time.Time, events []schedule.Event) []recovery {
	slow := func(d time.Duration) time.Duration { return time.Duration(float64(d) * c.slow) }
	soon, cancel := context.WithDeadline(ctx, healed.Add(slow(recoveryTimeout)))
	defer cancel()
	soonLongLived, cancelLongLived := context.WithDeadline(ctx, healed.Add(slow(recoveryTimeout+tcpExtra)))
	defer cancelLongLived()
	var recovered []recovery
	var group sync.WaitGroup
	group.Go(func() { recovered = c.trafficSet.recover(soon, soonLongLived, healed) })
	group.Go(func() { c.trafficSet.awaitUnchanged(soon, c.answers) })
	group.Wait()
	for _, r := range recovered {
		if r.err != nil {
			c.log.add(late, "%v; %s", r.err, r.end())
		}
	}
	until, cancelReady := context.WithTimeout(ctx, slow(readyTimeout))
	defer cancelReady()
	if err := c.awaitReady(until); err != nil {
		c.log.add(late, "agents: %v", err)
	}
	c.trafficSet.checkAllocations(ctx)
	c.checkForeign(ctx, events)
	c.checkMemory(ctx)
	if lost, err := c.captures.lost(); err != nil || lost > 0 {
		c.log.add(late, "the capture missed %d frames (%v): its result for this round is not valid", lost, err)
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
			return last // more useful than the context's error
		}
		if last = err; !wait(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// checkForeign checks the foreign objects. A node that lost power lost them: checkForeign
// creates them again.
func (c *chaos) checkForeign(ctx context.Context, events []schedule.Event) {
	var intact, lost []string
	for _, n := range c.topology.Nodes {
		off := slices.ContainsFunc(events, func(e schedule.Event) bool { return e.Target == n.ID && schedule.CutsPower(e.Kind) })
		if off {
			lost = append(lost, n.ID)
		} else {
			intact = append(intact, n.ID)
		}
	}
	for _, text := range c.foreign.check(ctx, intact...) {
		c.log.add(safety, "%s", text)
	}
	if err := c.foreign.create(ctx, lost...); err != nil {
		c.log.add(safety, "%v", err)
	}
}

func (c *chaos) checkMemory(ctx context.Context) {
	now, err := c.measureUnkilled(ctx)
	switch {
	case err != nil:
		c.log.add(safety, "measure memory: %v", err)
	case c.first == nil:
		c.first = now
	default:
		for _, text := range listGrown(c.first, now) {
			c.log.add(safety, "%s", text)
		}
	}
	c.sum.memory = now
}

// recording records the agents' input until end is called, for tests that replay these rounds.
// It does nothing without -record.
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
