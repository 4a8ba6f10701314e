package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func measureTopology(ctx context.Context, _ config) (s section, err error) {
	dir, err := os.MkdirTemp("", "hawser-bench-")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	large, err := newTrial(filepath.Join(dir, "large"), topologyClusters, topologyExports)
	if err != nil {
		return s, err
	}
	small, err := newTrial(filepath.Join(dir, "small"), topologyClusters/10, topologyExports/10)
	if err != nil {
		return s, err
	}
	for range topologyRounds {
		if err := errors.Join(large.round(ctx), small.round(ctx)); err != nil {
			return s, err
		}
	}
	return topologySection(large, small), nil
}

func topologySection(large, small *trial) section {
	s := section{
		title: "A large topology",
		how: fmt.Sprintf(`
%d clusters with the same prefixes, two gateways each, and %d exports with two ports from two clusters each, through the pure
path: load and
validate, allocate, render, and the plan against what is published, with reach, firewalls and impact. *First time* makes
everything, *one more export* is what a commit usually does, and *mesh to hubs* has three clusters pass on what all others
send each other. Each run is a
process of its own; memory is its peak resident set. The reference is the same with a tenth of the clusters and exports: 0.10 is growth in
proportion.`, topologyClusters, topologyExports),
	}
	for _, k := range []struct {
		name string
		of   func(*trial) []measured
	}{{"first time", func(t *trial) []measured { return t.first }}, {"one more export", func(t *trial) []measured { return t.more }},
		{"mesh to hubs", func(t *trial) []measured { return t.hub }}} {
		l, r := k.of(large), k.of(small)
		for _, part := range []struct {
			name string
			of   func(steps) time.Duration
		}{
			{"validate", func(s steps) time.Duration { return s.Validate }}, {"allocate", func(s steps) time.Duration { return s.Allocate }},
			{"render", func(s steps) time.Duration { return s.Render }}, {"diff", func(s steps) time.Duration { return s.Diff }},
		} {
			s.rows = append(s.rows, durations(k.name+", "+part.name, l, r, func(m measured) time.Duration { return part.of(m.steps) }))
		}
		total := func(m measured) time.Duration { return m.total() }
		took := median(pick(l, total))
		s.rows = append(s.rows, durations(k.name+", all four", l, r, total).aim(millis(topologyTime), took <= topologyTime))
		memory, smaller := median(pick(l, memoryOf)), median(pick(r, memoryOf))
		s.rows = append(s.rows, row{what: k.name + ", memory", figure: mebibytes(memory), reference: mebibytes(smaller),
			ratio: fmt.Sprintf("%.2f", float64(smaller)/float64(memory))}.aim(mebibytes(topologyMemory), memory <= topologyMemory))
	}
	return s
}

func memoryOf(m measured) int64 { return m.memory }

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

func durations(what string, large, small []measured, of func(measured) time.Duration) row {
	l, s := median(pick(large, of)), median(pick(small, of))
	return row{what: what, figure: millis(l), reference: millis(s), ratio: fmt.Sprintf("%.2f", s.Seconds()/l.Seconds())}
}

func pick[A, B any](list []A, of func(A) B) []B {
	out := make([]B, len(list))
	for i, a := range list {
		out[i] = of(a)
	}
	return out
}
