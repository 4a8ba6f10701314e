package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"hawser.dev/hawser/e2e/bench/flow"
	"hawser.dev/hawser/lab"
)

const (
	unreadyReps = 20
	unreadyRate = 500 // new connections a second
	// unreadyTime is how long after its facts have changed an unready backend may
	// still get a new connection.
	unreadyTime = 200 * time.Millisecond
	// unreadyQuiet is how long nothing comes when nothing comes any more.
	unreadyQuiet = 1500 * time.Millisecond
)

// turn is a backend that became unready and ready again.
type turn struct {
	last   time.Duration // from the change of the facts to the last new connection
	first  time.Duration // from the change back to the first one
	failed int           // new connections that failed meanwhile
}

func measureUnready(ctx context.Context, c config) (s section, err error) {
	n, err := reps(unreadyReps)
	if err != nil {
		return s, err
	}
	b, err := newStallBed(ctx, c, nil)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	to, err := b.address(ctx, "back")
	if err != nil {
		return s, err
	}
	dials := flow.StartDials(b.near, to, unreadyRate)
	defer func() { err = errors.Join(err, dials.Close()) }()
	var last, first []time.Duration
	failed := 0
	for i := range n {
		one, err := b.turn(ctx, fmt.Sprintf("back-%d", 1+i%3), dials)
		if err != nil {
			return s, fmt.Errorf("repetition %d: %w", i, err)
		}
		fmt.Fprintf(os.Stderr, "bench: unready %d of %d: last after %s, first again after %s, %d failed\n", i+1, n, one.last, one.first, one.failed)
		last, first, failed = append(last, one.last), append(first, one.first), failed+one.failed
	}
	return unreadySection(n, last, first, failed), nil
}

func unreadySection(n int, last, first []time.Duration, failed int) section {
	target, median, slowest := millis(unreadyTime)+" (target)", median(last), quantile(last, 1)
	ratio := func(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()/unreadyTime.Seconds()) }
	return section{
		title: "A backend becomes unready",
		how: fmt.Sprintf(`
A lab of three clusters. A pod of one opens %d new connections a second to a service with three backends in another. One backend becomes
unready, and ready again, %d times in turn. The clock runs from the moment at which the first node of its cluster has the changed
file with the facts, until the client begins the last new connection that the backend gets; then from the change back to its first one. %d of the
new connections of all that time failed.`, unreadyRate, n, failed),
		rows: []row{
			row{what: "last new connection, p50", figure: millis(median), reference: target, ratio: ratio(median)}.
				aim(millis(unreadyTime), median <= unreadyTime),
			row{what: "last new connection, max", figure: millis(slowest), reference: target, ratio: ratio(slowest)}.
				aim(millis(unreadyTime), slowest <= unreadyTime),
			{what: "first one again, p50", figure: millis(quantile(first, 0.5)), reference: target, ratio: ratio(quantile(first, 0.5))},
			{what: "first one again, max", figure: millis(quantile(first, 1)), reference: target, ratio: ratio(quantile(first, 1))},
		},
		after: `
All agents, the client and the servers share the processors: the slowest are turns in which an agent waited for one.`,
	}
}

// turn makes a backend unready and ready again.
func (b *stallBed) turn(ctx context.Context, pod string, dials *flow.Dials) (t turn, err error) {
	server := b.servers[pod]
	after := func(at time.Time) error {
		return within(ctx, 20*time.Second, func() error {
			if !server.Newest().After(at) {
				return fmt.Errorf("%s gets no connections", pod)
			}
			return nil
		})
	}
	if err := after(time.Now()); err != nil {
		return t, err
	}
	begin := time.Now()
	off, err := b.ready(ctx, pod, false)
	if err != nil {
		return t, err
	}
	err = within(ctx, 30*time.Second, func() error {
		if silence := time.Since(later(server.Newest(), off)); silence < unreadyQuiet {
			return fmt.Errorf("%s gets connections %s after it became unready", pod, time.Since(off)-silence)
		}
		return nil
	})
	if err != nil {
		return t, err
	}
	silent := time.Now()
	t.last = max(0, server.Newest().Sub(off))
	on, err := b.ready(ctx, pod, true)
	if err != nil {
		return t, err
	}
	if err := after(silent); err != nil {
		return t, err
	}
	t.first = time.Since(on)
	for _, call := range dials.Begun(begin, time.Now()) {
		if call.Err != nil {
			t.failed++
		}
	}
	return t, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ready changes a backend's readiness and gives the time at which the first node
// had it in its facts.
func (b *stallBed) ready(ctx context.Context, pod string, ready bool) (time.Time, error) {
	before, err := b.factsAt()
	if err != nil {
		return time.Time{}, err
	}
	if err := b.client.Change(ctx, lab.Change{Cluster: stallFar, Pod: "bench/" + pod, Ready: ready}); err != nil {
		return time.Time{}, err
	}
	now, err := b.factsAt()
	if err != nil {
		return time.Time{}, err
	}
	var changed []time.Time
	for file, at := range now {
		if at.After(before[file]) {
			changed = append(changed, at)
		}
	}
	if len(changed) == 0 {
		return time.Time{}, fmt.Errorf("%s ready %t: no facts changed", pod, ready)
	}
	return slices.MinFunc(changed, time.Time.Compare), nil
}

// factsAt tells when each file with facts of the servers' cluster was written.
func (b *stallBed) factsAt() (map[string]time.Time, error) {
	out := map[string]time.Time{}
	for _, id := range b.ids(stallFar) {
		err := filepath.WalkDir(filepath.Join(b.nodes[id].Dir, "facts"), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				out[path] = info.ModTime()
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
