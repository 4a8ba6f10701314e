package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/e2e/chaos/sniff"
	"hawser.dev/hawser/lab"
)

// unprotected records when nodes had no rules: from a loss of power to the first round of the
// agent. Meanwhile packets for other clusters leave a node by its default route (known limits in
// docs/security.md). It is safe for concurrent use.
type unprotected struct {
	mu    sync.Mutex
	times map[sniff.HardwareAddr][]timeRange
	sent  int // packets that nodes without rules sent unencrypted
}

// timeRange is a time without rules. A zero end means that it has not ended.
type timeRange struct{ start, end time.Time }

func newUnprotected() *unprotected {
	return &unprotected{times: map[sniff.HardwareAddr][]timeRange{}}
}

// powerLost begins the time without rules of a node. The returned function ends it. If the node
// loses its power again before, the function has no effect.
func (u *unprotected) powerLost(node string) (end func()) {
	addr := sniff.HardwareAddr(lab.HardwareAddr(node, lab.SideLAN))
	u.mu.Lock()
	defer u.mu.Unlock()
	now, index := time.Now(), len(u.times[addr])
	if index > 0 && u.times[addr][index-1].end.IsZero() {
		u.times[addr][index-1].end = now // its agent did not complete a round
	}
	u.times[addr] = append(u.times[addr], timeRange{start: now})
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.times[addr][index].end.IsZero() {
			u.times[addr][index].end = time.Now()
		}
	}
}

// permits reports whether a frame is from a node without rules. It counts such frames.
func (u *unprotected) permits(f sniff.Finding) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	found := slices.ContainsFunc(u.times[f.From], func(r timeRange) bool {
		return !f.At.Before(r.start) && (r.end.IsZero() || f.At.Before(r.end))
	})
	if found {
		u.sent++
	}
	return found
}

func (u *unprotected) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sent
}

// awaitRules calls done after the first round of the agent of a node that has booted.
func awaitRules(ctx context.Context, n lab.NodeStatus, done func()) {
	for wait(ctx, 50*time.Millisecond) {
		if s, err := n.QueryAgent(ctx); err == nil && s.Digest != "" {
			done()
			return
		}
	}
}
