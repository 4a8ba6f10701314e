package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/reconciler/gitrepo"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/load"
)

const (
	// pollInterval is the time between two reads of the clusters.
	pollInterval = time.Second
	// fetchInterval is the time between two fetches of the publish branch. It is longer than
	// pollInterval to reduce the load on the git server.
	fetchInterval = 10 * time.Second
)

// watch prints the overview after each change and marks the changes. On a terminal it replaces the
// previous overview, otherwise it appends.
func watch(ctx context.Context, env *cli.Env, read func() overview) error {
	first, between := "", "\n"
	if cli.IsTerminal(env.Out) {
		first = "\x1b[H\x1b[2J" // cursor to the top, clear the screen
		between = first
	}
	var states []health.State // of the last output
	for before := ""; ; {
		current := read()
		if text := current.String(); text != before && ctx.Err() == nil {
			if _, err := fmt.Fprint(env.Out, first, statusDrawing(states, current.states, env.Colored(env.Out)), "\n", text); err != nil {
				return err
			}
			before, first, states = text, between, current.states
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pollInterval):
		}
	}
}

// waitHealthy waits until agents run the published fabric and image and no problem blocks, or until
// the timeout. Then it prints the overview.
func waitHealthy(ctx context.Context, env *cli.Env, t topofile.File, f statusFlags, read func() overview) error {
	end := time.Now().Add(f.timeout)
	verify, err := baseline.Verifiers("", t.Path, topofile.BuildFlags{})
	if err != nil {
		return err
	}
	g := waitTarget{topology: t, from: baseline.Options{File: t.Path, Address: f.repo, Branch: f.branch, Flag: "--branch", Verify: verify}}
	var printed []string
	for {
		o := read()
		if time.Since(g.readAt) >= fetchInterval || len(blocking(o.problems))+len(g.laggingAgents(o.states)) == 0 {
			g.refresh(ctx)
		}
		o.problems = append(o.problems, g.laggingAgents(o.states)...)
		texts := blocking(o.problems)
		if len(texts) == 0 {
			return printOverview(env, f.output, o)
		}
		for _, text := range texts {
			if !slices.Contains(printed, text) {
				_, _ = fmt.Fprintln(env.Err, "waiting:", diag.Line(text))
			}
		}
		printed = texts
		remaining := time.Until(end)
		if remaining <= 0 {
			if err := cmp.Or(printOverview(env, f.output, o), exitError(o.problems)); !errors.Is(err, cli.ExitError{}) {
				return err
			}
			return cli.ExitError{Msg: fmt.Sprintf("there are still problems after %s", f.timeout)}
		}
		select {
		case <-ctx.Done():
			return cli.ExitError{Msg: "interrupted while there were problems"}
		case <-time.After(min(pollInterval, remaining)):
		}
	}
}

// blocking returns the texts of the problems that block --wait.
func blocking(problems []health.Problem) []string {
	var texts []string
	for _, p := range problems {
		if p.Severity.Blocks() {
			texts = append(texts, p.String())
		}
	}
	return texts
}

// waitTarget is the published fabric and image that agents must run, if they are of the topology.
type waitTarget struct {
	topology topofile.File // empty = any published fabric
	from     baseline.Options

	readAt    time.Time
	digest    string         // digest of the published fabric; empty without a repository
	image     string         // image of the agents
	blockedBy health.Problem // why --wait cannot start yet; without a text = it can
}

// refresh reads the publish branch.
func (g *waitTarget) refresh(ctx context.Context) {
	g.readAt, g.digest, g.image, g.blockedBy = time.Now(), "", "", health.Problem{}
	if g.topology.Raw == nil && g.from.Address == "" {
		return
	}
	blocked := func(code, next, format string, args ...any) {
		g.blockedBy = health.Problem{Severity: health.Error, Code: code, Text: fmt.Sprintf(format, args...), Next: next}
	}
	p, err := g.from.Load(ctx)
	switch {
	case g.from.Address == "" && errors.Is(err, gitrepo.ErrNoRepository) && !errors.Is(err, gitrepo.ErrNoBranch):
		return
	case err != nil:
		blocked("publish-branch", "", "the publish branch cannot be read: %v", err)
		return
	case p.Missing != "":
		blocked("not-published", "hawser bootstrap, or git push if a reconciler runs", "%s", p.Missing)
		return
	}
	if g.topology.Raw != nil {
		set, _, _ := load.Topology(g.topology.Path, g.topology.Raw) // errors would have prevented the start of --wait
		want, err := render.Topology(set)
		if err != nil {
			blocked("topology", "", "%v", err)
			return
		}
		if string(p.Tree[render.TopologyText]) != string(want) {
			blocked("not-published", "git commit and git push, then hawser bootstrap unless a reconciler runs, whose log shows refused commits",
				"branch %s does not have the topology of %s yet", p.Name, g.topology.Path)
			return
		}
	}
	g.image = render.ImageOf(p.Tree)
	if g.digest, err = render.FabricDigest(p.Tree); err != nil {
		blocked("publish-branch", "", "%v", err)
	}
}

// laggingAgents returns the problems of clusters and agents that do not run the published fabric
// and image.
func (g *waitTarget) laggingAgents(states []health.State) []health.Problem {
	if g.blockedBy.Text != "" {
		return []health.Problem{g.blockedBy}
	}
	if g.digest == "" {
		return nil
	}
	var out []health.Problem
	for _, s := range states {
		if s.Error != "" {
			continue
		}
		add := func(code, next, format string, args ...any) {
			out = append(out, health.Problem{Severity: health.Error, Code: code, Cluster: s.Cluster, Text: fmt.Sprintf(format, args...), Next: next})
		}
		switch {
		case s.Delivered != "" && s.Delivered != g.digest:
			add("not-delivered", status.NextDeliver, "the cluster has fabric %s, not the published fabric %s", s.Delivered, g.digest)
			continue
		case s.Image != "" && g.image != "" && s.Image != g.image:
			add("not-delivered", status.NextDeliver, "the agents run image %s, not the published image %s", s.Image, g.image)
			continue
		}
		var lagging []string
		for _, n := range s.Nodes {
			if n.NodeNotReady == "" && n.Fabric != g.digest {
				lagging = append(lagging, n.Name)
			}
		}
		if len(lagging) > 0 {
			add("fabric-old", "wait for these agents, which read the delivered fabric", "%s: not at the published fabric %s yet", strings.Join(lagging, ", "), g.digest)
		}
	}
	return out
}
