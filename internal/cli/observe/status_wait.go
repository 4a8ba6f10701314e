package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/load"
)

const (
	// pollInterval is the time between two reads of the clusters.
	pollInterval = time.Second
	// readAgain is the time between two fetches of the publish branch. It is longer, to spare the
	// git server.
	readAgain = 10 * time.Second
)

// watch prints the overview after each change and marks the changes. On a terminal it replaces the last
// overview; elsewhere it appends.
func watch(ctx context.Context, env *cli.Env, look func() overview) error {
	first, between := "", "\n"
	if cli.IsTerminal(env.Out) {
		first = "\x1b[H\x1b[2J" // to the first line, and all gone
		between = first
	}
	var states []clusterstatus.State // as they were shown last
	for before := ""; ; {
		seen := look()
		if text := seen.String(); text != before && ctx.Err() == nil {
			if _, err := fmt.Fprint(env.Out, first, drawnStatus(states, seen.states, env.Colored(env.Out)), "\n", text); err != nil {
				return err
			}
			before, first, states = text, between, seen.states
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pollInterval):
		}
	}
}

// await waits until no problem is left or the time is over, and prints the overview.
func await(ctx context.Context, env *cli.Env, t topofile.File, f statusFlags, look func() overview) error {
	end := time.Now().Add(f.timeout)
	verify, err := baseline.Verifiers("", t.Path, topofile.BuildFlags{})
	if err != nil {
		return err
	}
	g := waitTarget{topology: t, from: baseline.Options{File: t.Path, Address: f.repo, Branch: f.branch, Flag: "--branch", Verify: verify}}
	var said []string
	for {
		o := look()
		late := g.laggingAgents(o.states)
		if time.Since(g.read) >= readAgain || len(o.problems)+len(late) == 0 {
			g.refresh(ctx)
			late = g.laggingAgents(o.states)
		}
		if o.problems = append(o.problems, late...); len(o.problems) == 0 {
			return printOverview(env, f.output, o)
		}
		for _, text := range o.problems {
			if !slices.Contains(said, text) {
				_, _ = fmt.Fprintln(env.Err, "waiting:", text)
			}
		}
		said = o.problems
		left := time.Until(end)
		if left <= 0 {
			if err := printOverview(env, f.output, o); !errors.Is(err, cli.ExitError{}) {
				return err
			}
			return cli.ExitError{Msg: fmt.Sprintf("not all is well after %s", f.timeout)}
		}
		select {
		case <-ctx.Done():
			return cli.ExitError{Msg: "interrupted before all was well"}
		case <-time.After(min(pollInterval, left)):
		}
	}
}

// waitTarget is the published fabric that agents should apply, if it is the one of the topology.
type waitTarget struct {
	topology topofile.File // without text: any published fabric
	from     baseline.Options

	read      time.Time // when it was asked last
	digest    string    // of the published fabric; empty without a topology
	blockedBy string    // why nothing can be followed yet
}

// refresh reads the publish branch.
func (g *waitTarget) refresh(ctx context.Context) {
	g.read, g.digest, g.blockedBy = time.Now(), "", ""
	if g.topology.Raw == nil && g.from.Address == "" {
		return
	}
	p, err := g.from.Load(ctx)
	switch {
	case g.from.Address == "" && errors.Is(err, gitrepo.ErrNoRepository) && !errors.Is(err, gitrepo.ErrNoBranch):
		return
	case err != nil:
		g.blockedBy = "what is published is not known: " + err.Error()
		return
	case p.Missing != "":
		g.blockedBy = p.Missing
		return
	}
	if g.topology.Raw != nil {
		set, _, _ := load.Topology(g.topology.Path, g.topology.Raw) // without errors, or the clusters were not known
		want, err := render.Topology(set)
		if err != nil {
			g.blockedBy = err.Error()
			return
		}
		if string(p.Tree[render.TopologyText]) != string(want) {
			g.blockedBy = fmt.Sprintf("what is published on %s is not what %s says: commit and push it, and see what the reconciler says of it", p.Name, g.topology.Path)
			return
		}
	}
	if g.digest, err = render.FabricDigest(p.Tree); err != nil {
		g.blockedBy = err.Error()
	}
}

// laggingAgents says which agents do not follow it, by cluster.
func (g *waitTarget) laggingAgents(states []clusterstatus.State) []string {
	if g.blockedBy != "" {
		return []string{g.blockedBy}
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
