package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"hawser.dev/hawser/internal/due"
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

// turns are those of one export.
type turns struct {
	last, first []time.Duration
	failed      int
}

func measureUnready(ctx context.Context, c config) (s section, err error) {
	n, err := reps(unreadyReps)
	if err != nil {
		return s, err
	}
	const pools = "globalnet: {egress: auto}"
	b, err := newStallBed(ctx, c, map[string]string{pools: pools + "\n  dynamicExports: {namespaces: [bench]}"})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	// 500 connections a second that go first would keep the agents waiting.
	if err := b.yield(); err != nil {
		return s, err
	}
	if _, err := b.hawser(ctx, "lab", "apply", stallFar, "-f", filepath.Join(c.root, "e2e/bench/testdata/made.yaml")); err != nil {
		return s, err
	}
	declared, err := b.turns(ctx, "back", n)
	if err != nil {
		return s, err
	}
	made, err := b.turns(ctx, "made", n)
	if err != nil {
		return s, err
	}
	return unreadySection(n, declared, made), nil
}

// turns takes the backends of an export out and in, one after the other.
func (b *stallBed) turns(ctx context.Context, export string, n int) (t turns, err error) {
	var to netip.AddrPort
	if err := within(ctx, restWithin, func() (err error) { to, err = b.address(ctx, export); return err }); err != nil {
		return t, err
	}
	dials := startDials(b.near, to, unreadyRate)
	defer func() { err = errors.Join(err, dials.Close()) }()
	for i := range n {
		one, err := b.turn(ctx, fmt.Sprintf("back-%d", 1+i%3), dials)
		if err != nil {
			return t, fmt.Errorf("%s, repetition %d: %w", export, i, err)
		}
		fmt.Fprintf(os.Stderr, "bench: %s unready %d of %d: last after %s, first again after %s, %d failed\n", export, i+1, n, one.last, one.first, one.failed)
		t.last, t.first, t.failed = append(t.last, one.last), append(t.first, one.first), t.failed+one.failed
	}
	return t, nil
}

func unreadySection(n int, declared, made turns) section {
	return section{
		title: "A backend becomes unready",
		how: fmt.Sprintf(`
A lab of three clusters. A pod of one opens %d new connections a second to a service with three backends in another. One backend becomes
unready, and ready again, %d times in turn. The clock runs from the moment at which the first node of its cluster has the changed
file with the facts, until the client begins the last new connection that the backend gets; then from the change back to its first one. %d of the
new connections of all that time failed. Then the same over a second service of the same backends, exported in its cluster by a ServiceExport; of its connections
%d failed.`, unreadyRate, n, declared.failed, made.failed),
		rows: append(declared.rows(""), made.rows(", exported in its cluster")...),
		after: `
All agents, the client and the servers share the processors: the slowest are turns in which an agent waited for one.`,
	}
}

func (t turns) rows(of string) []row {
	figure := func(what string, d time.Duration) row {
		return row{
			what: what + of, figure: millis(d), reference: millis(unreadyTime) + " (target)",
			ratio: fmt.Sprintf("%.2f", d.Seconds()/unreadyTime.Seconds()),
		}
	}
	aimed := func(r row, d time.Duration) row { return r.aim(millis(unreadyTime), d <= unreadyTime) }
	median, slowest := median(t.last), quantile(t.last, 1)
	return []row{
		aimed(figure("last new connection, p50", median), median),
		aimed(figure("last new connection, max", slowest), slowest),
		figure("first one again, p50", quantile(t.first, 0.5)),
		figure("first one again, max", quantile(t.first, 1)),
	}
}

// turn makes a backend unready and ready again.
func (b *stallBed) turn(ctx context.Context, pod string, dials *background) (t turn, err error) {
	newest := func() time.Time { return time.Unix(0, b.newest[pod].Load()) }
	after := func(at time.Time) error {
		return within(ctx, 20*time.Second, func() error {
			if !newest().After(at) {
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
		if silence := time.Since(due.Later(newest(), off)); silence < unreadyQuiet {
			return fmt.Errorf("%s gets connections %s after it became unready", pod, time.Since(off)-silence)
		}
		return nil
	})
	if err != nil {
		return t, err
	}
	silent := time.Now()
	t.last = max(0, newest().Sub(off))
	on, err := b.ready(ctx, pod, true)
	if err != nil {
		return t, err
	}
	if err := after(silent); err != nil {
		return t, err
	}
	t.first = time.Since(on)
	for _, call := range dials.begun(begin, time.Now()) {
		if call.Error != "" {
			t.failed++
		}
	}
	return t, nil
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
