package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/reconciler/apply"
	"hawser.dev/hawser/reconciler/repo"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/load"
)

const (
	// askAgain is how long status waits between two looks at the clusters.
	askAgain = time.Second
	// readAgain is how old what is published may be while agents are compared with it:
	// whoever serves the repository is asked less often than the clusters.
	readAgain = 10 * time.Second
)

// watch draws and tells what clusters say each time that it is something else, and marks
// what changed: on a terminal in place of what was there, elsewhere below it.
func (a *app) watch(ctx context.Context, look func() overview) error {
	first, between := "", "\n"
	if terminal(a.out) {
		first = "\x1b[H\x1b[2J" // to the first line, and all gone
		between = first
	}
	var states []apply.State // as they were shown last
	for before := ""; ; {
		seen := look()
		if text := seen.String(); text != before && ctx.Err() == nil {
			if _, err := fmt.Fprint(a.out, first, drawnStatus(states, seen.states, a.colored(a.out)), "\n", text); err != nil {
				return err
			}
			before, first, states = text, between, seen.states
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(askAgain):
		}
	}
}

// await looks until nothing is left to be said, and prints what clusters say then, or at
// the end of the time.
func (a *app) await(ctx context.Context, t topology, f statusFlags, look func() overview) error {
	end := time.Now().Add(f.timeout)
	verify, err := verifiers("", t.file, buildFlags{})
	if err != nil {
		return err
	}
	g := goal{topology: t, from: publishedInput{file: t.file, address: f.repo, branch: f.branch, flag: "--branch", verify: verify}}
	var said []string
	for {
		o := look()
		late := g.behind(o.states)
		if time.Since(g.read) >= readAgain || len(o.trouble)+len(late) == 0 {
			g.refresh(ctx)
			late = g.behind(o.states)
		}
		if o.trouble = append(o.trouble, late...); len(o.trouble) == 0 {
			return a.printOverview(f.output, o)
		}
		for _, text := range o.trouble {
			if !slices.Contains(said, text) {
				_, _ = fmt.Fprintln(a.err, "waiting:", text)
			}
		}
		said = o.trouble
		left := time.Until(end)
		if left <= 0 {
			if err := a.printOverview(f.output, o); !errors.Is(err, answer{}) {
				return err
			}
			return answer{fmt.Sprintf("not all is well after %s", f.timeout)}
		}
		select {
		case <-ctx.Done():
			return answer{"interrupted before all was well"}
		case <-time.After(min(askAgain, left)):
		}
	}
}

// goal is what agents are to follow: what is published, if that is what the topology says.
type goal struct {
	topology topology // without text: whatever is published
	from     publishedInput

	read   time.Time // when it was asked last
	digest string    // of the published fabric; empty where clusters alone say what is in force
	wrong  string    // why nothing can be followed yet
}

// refresh reads what is published.
func (g *goal) refresh(ctx context.Context) {
	g.read, g.digest, g.wrong = time.Now(), "", ""
	if g.topology.raw == nil && g.from.address == "" {
		return
	}
	p, err := g.from.read(ctx)
	switch {
	case g.from.address == "" && errors.Is(err, repo.ErrNoRepository) && !errors.Is(err, repo.ErrNoBranch):
		return
	case err != nil:
		g.wrong = "what is published is not known: " + err.Error()
		return
	case p.none != "":
		g.wrong = p.none
		return
	}
	if g.topology.raw != nil {
		set, _, _ := load.Topology(g.topology.file, g.topology.raw) // without errors, or the clusters were not known
		want, err := render.Topology(set)
		if err != nil {
			g.wrong = err.Error()
			return
		}
		if string(p.tree[render.TopologyText]) != string(want) {
			g.wrong = fmt.Sprintf("what is published on %s is not what %s says: commit and push it, and see what the reconciler says of it", p.Name, g.topology.file)
			return
		}
	}
	if g.digest, err = render.FabricDigest(p.tree); err != nil {
		g.wrong = err.Error()
	}
}

// behind says which agents do not follow it, by cluster.
func (g *goal) behind(states []apply.State) []string {
	if g.wrong != "" {
		return []string{g.wrong}
	}
	var out []string
	for _, s := range states {
		var late []string
		for _, n := range s.Nodes {
			if g.digest != "" && n.Fabric != g.digest {
				late = append(late, n.Name)
			}
		}
		if len(late) > 0 {
			out = append(out, fmt.Sprintf("%s: %s not at the published fabric %s yet", s.Cluster, strings.Join(late, ", "), g.digest))
		}
	}
	return out
}
