package conntrack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// refreshResult is the result of a round.
type refreshResult struct {
	sent, failed, skipped int
	idleFlows             map[string]int // flows without a packet since the move, by cluster
}

// refresh runs one round.
func refresh(ctx context.Context, device string, now time.Time, moves []*pathMove) (refreshResult, error) {
	flows, result, err := findIdleFlows(ctx, now, moves)
	if err != nil || len(flows) == 0 {
		return result, err
	}
	s, err := openSender(device)
	if err != nil {
		return result, err
	}
	defer s.close()
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range flows {
		if wait := pause(i, time.Since(began)); wait > 0 {
			timer.Reset(wait)
			select {
			case <-ctx.Done():
				return result, fmt.Errorf("send refresh packets: %w", ctx.Err())
			case <-timer.C:
			}
		}
		switch err := s.send(&flows[i]); {
		case err == nil:
			result.sent++
		case !errors.Is(err, errNoNodeHop):
			result.failed++
		}
	}
	return result, nil
}

// findIdleFlows reads conntrack and returns the flows that need a refresh packet, most important
// first.
func findIdleFlows(ctx context.Context, now time.Time, moves []*pathMove) ([]Flow, refreshResult, error) {
	result := refreshResult{idleFlows: map[string]int{}}
	times, err := readTimeouts()
	if err != nil {
		return nil, result, err
	}
	byName, clusters := map[string]*pathMove{}, newPrefixTable()
	for _, m := range moves {
		byName[m.cluster] = m
		clusters.add(m.cluster, m.prefixes)
	}
	var ranks [3][]Flow
	err = listFlows(ctx, func(f *Flow) {
		name, ok := clusters.find(f.Reply.From.Addr())
		// For flows that this node translates, or that another node handed over, this node is
		// the gateway.
		if !ok || !f.keepsSource() || f.Mark != 0 || !f.serverMaySend() {
			return
		}
		m := byName[name]
		idle, known := times.idle(f)
		if !m.needsRefresh(now, idle, known) {
			return
		}
		result.idleFlows[name]++
		rank := rank(f)
		ranks[rank] = append(ranks[rank], *f)
	})
	if err != nil {
		return nil, result, err
	}
	flows := append(append(ranks[0], ranks[1]...), ranks[2]...)
	if len(flows) > maxRefreshes {
		result.skipped = len(flows) - maxRefreshes
		flows = flows[:maxRefreshes]
	}
	return flows, result, nil
}

// rank sorts TCP before UDP, and UDP without a reply last: it is mostly over already, such as a
// DNS query.
func rank(f *Flow) int {
	switch {
	case f.Protocol == unix.IPPROTO_TCP:
		return 0
	case f.Status&statusSeenReply != 0:
		return 1
	default:
		return 2
	}
}
