package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
)

const convergeRounds = 50

func measureConverge(ctx context.Context, _ config) (s section, err error) {
	g, err := newGateway()
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	first := g.engine.Once(ctx, g.state, "first")
	if err := first.Err(); err != nil {
		return s, fmt.Errorf("first pass: %w", err)
	}
	sides := []*side{
		{name: "nothing to do", once: func() (time.Duration, error) {
			if _, err := g.pass(ctx, 0); err != nil {
				return 0, err
			}
			return g.pass(ctx, 0)
		}},
		{name: "nothing to do, everything read again", once: func() (time.Duration, error) { return g.disturbed(ctx) }},
		{name: "one element changes", once: func() (time.Duration, error) { return g.oneElement(ctx) }},
	}
	if err := alternate(convergeRounds, sides); err != nil {
		return s, err
	}
	return convergeSection(first, sides), nil
}

// pass converges once, and fails unless it makes the given number of changes.
func (g *gateway) pass(ctx context.Context, changes int) (time.Duration, error) {
	r := g.engine.Once(ctx, g.state, strconv.Itoa(g.generation))
	if len(r.Changed) != changes || !r.Clean() {
		return 0, fmt.Errorf("%d changes, want %d: %w", len(r.Changed), changes, r.Err())
	}
	return r.Took, nil
}

// disturbed converges once after another program changed the ruleset: the engine must read
// everything again.
func (g *gateway) disturbed(ctx context.Context) (time.Duration, error) {
	if err := g.space.run("add table inet foreign; delete table inet foreign", "nft", "-f", "-"); err != nil {
		return 0, err
	}
	return g.pass(ctx, 0)
}

// oneElement changes the backend of one slot, in a new state like the projection's. The next
// measurement starts with the pass that reads the change back.
func (g *gateway) oneElement(ctx context.Context) (time.Duration, error) {
	if _, err := g.pass(ctx, 0); err != nil {
		return 0, err
	}
	g.generation++
	for i, e := range g.state.Elements {
		if e.Set == desired.SetSlots {
			g.state.Elements[i].Value = nth(exports, 1+g.generation%2).String() + " . 80"
			break
		}
	}
	return g.pass(ctx, 1)
}

func convergeSection(first converge.Report, sides []*side) section {
	s := section{
		title: "The engine",
		method: fmt.Sprintf(`
A gateway with %d peers (WireGuard in a separate process), two routes per peer, %d elements and %d services in DNS, and the engine
with all stages, in a namespace. *Nothing to do* is a resync; *everything read again* is a resync after another program changed
nftables. *One element changes* is the pass from a new desired state to the kernel's acknowledgement.`,
			enginePeers, engineElements, engineElements/4),
		rows: []row{{metric: "first pass, everything is made", figure: millis(first.Took), reference: fmt.Sprintf("%d objects", len(first.Changed)),
			ratio: fmt.Sprintf("%.0f µs an object", first.Took.Seconds()*1e6/float64(len(first.Changed)))}},
	}
	targets := []time.Duration{20 * time.Millisecond, 20 * time.Millisecond, 10 * time.Millisecond}
	for i, side := range sides {
		m := median(side.times)
		r := row{metric: side.name, figure: millis(m), reference: millis(first.Took) + " (first pass)",
			ratio: fmt.Sprintf("%.3f", m.Seconds()/first.Took.Seconds())}
		s.rows = append(s.rows, r.withTarget(millis(targets[i]), m <= targets[i]))
	}
	return s
}
