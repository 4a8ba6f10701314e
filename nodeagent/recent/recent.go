// Package recent remembers how a node was in the last hour: samples of its status, what its
// rounds changed, and how far each kind of object is. It is of a fixed size and gone with the
// agent; Prometheus is for what should be kept.
//
// Called by nodeagent.
package recent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/status"
)

const (
	// every is how often a sample of the node's status is kept for hawser-agent recent.
	every = 10 * time.Second
	// hour is how far back what hawser-agent recent prints goes.
	hour = time.Hour
)

const (
	mostSamples = int(hour / every)
	mostChanges = 64
	mostText    = 240 // bytes of a change, and of a reason
	mostKinds   = 64
)

// Ring is what is remembered. The zero Ring remembers nothing yet. Its methods may be called
// from any goroutine.
type Ring struct {
	mu      sync.Mutex
	samples [mostSamples]status.Sample
	taken   int // samples so far; the next one goes to taken % mostSamples
	changes [mostChanges]status.Note
	noted   int
	kinds   map[string]status.Kind // at most mostKinds

	rx, tx  int64 // of the sample before
	counted time.Time
}

// Run takes a sample at once, and then every ten seconds, until ctx ends.
func (r *Ring) Run(ctx context.Context, look func() status.Status) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		r.Sample(look(), time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Sample keeps what a status says at a time.
func (r *Ring) Sample(s status.Status, at time.Time) {
	out := status.Sample{At: at, Ready: s.Ready, Links: len(s.Connections), Drift: s.LastPass.Drift, Problems: len(s.Problems)}
	if s.Conntrack != nil {
		out.Connections = s.Conntrack.Entries
	}
	for _, d := range s.Dropped {
		out.Dropped += d.Packets
	}
	var rx, tx, rtt, chosen int64
	for _, c := range s.Connections {
		rx, tx = rx+c.RxBytes, tx+c.TxBytes
		if c.Status == status.Connected {
			out.Up++
		}
		if c.Chosen {
			out.Loss = max(out.Loss, c.Loss)
			if c.RTT != nil {
				rtt, chosen = rtt+c.RTT.Avg, chosen+1
			}
		}
	}
	if chosen > 0 {
		out.RTTMicros = rtt / chosen
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Tunnels that went, or were made anew, took their counts with them.
	if passed := at.Sub(r.counted).Seconds(); !r.counted.IsZero() && passed > 0 && rx >= r.rx && tx >= r.tx {
		out.RxRate, out.TxRate = int64(float64(rx-r.rx)/passed), int64(float64(tx-r.tx)/passed)
	}
	r.rx, r.tx, r.counted = rx, tx, at
	r.samples[r.taken%mostSamples] = out
	r.taken++
}

// Report keeps what a round did.
func (r *Ring) Report(report converge.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds == nil {
		r.kinds = map[string]status.Kind{}
	}
	update := func(name string, do func(*status.Kind)) {
		k, known := r.kinds[name]
		if !known && len(r.kinds) == mostKinds {
			return
		}
		k.Name = name
		do(&k)
		r.kinds[name] = k
	}
	for name := range r.kinds {
		update(name, func(k *status.Kind) { k.State, k.Why = done, "" })
	}
	for name, n := range report.Objects {
		update(name, func(k *status.Kind) { k.Objects, k.State = n, done })
	}
	for name, n := range report.Drift {
		update(name, func(k *status.Kind) { k.Drift += n })
	}
	for _, c := range report.Changed {
		update(c.Kind, func(k *status.Kind) { k.Changed++ })
		r.changes[r.noted%mostChanges] = status.Note{At: report.At, Text: cut(c.String()), By: cut(c.Origin)}
		r.noted++
	}
	for _, p := range slices.Concat(report.Left, report.Blocked) {
		update(p.Kind, func(k *status.Kind) { k.State, k.Why = waits, cut(p.Error()) })
	}
	for _, p := range slices.Concat(report.Fights, report.Failed) {
		update(p.Kind, func(k *status.Kind) { k.State, k.Why = failed, cut(p.Error()) })
	}
}

// States of a kind.
const (
	done   = "done"
	waits  = "waits"
	failed = "failed"
)

// cut makes a text short enough to be kept, and a copy, so that nothing longer is held.
func cut(text string) string {
	if len(text) <= mostText {
		return text
	}
	const mark = "..."
	return string([]byte(text[:mostText-len(mark)])) + mark
}

// Recent gives what is remembered of a node.
func (r *Ring) Recent(cluster, node string) status.Recent {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := status.Recent{
		Cluster: cluster, Node: node, EverySeconds: int(every / time.Second),
		Samples: []status.Sample{}, Kinds: []status.Kind{}, Changes: []status.Note{},
	}
	for i := max(0, r.taken-mostSamples); i < r.taken; i++ {
		out.Samples = append(out.Samples, r.samples[i%mostSamples])
	}
	for i := max(0, r.noted-mostChanges); i < r.noted; i++ {
		out.Changes = append(out.Changes, r.changes[i%mostChanges])
	}
	for _, name := range slices.Sorted(maps.Keys(r.kinds)) {
		out.Kinds = append(out.Kinds, r.kinds[name])
	}
	return out
}
