// Package applytree applies a tree to clusters for hawser apply and hawser diff --live. The
// tree comes from a topology, a directory or the publish branch.
package applytree

import (
	"context"
	"fmt"
	"time"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/internal/humanize"
)

// Flags are the flags of hawser apply.
type Flags struct {
	TreeFlags
	clusterselect.Flags
	Rules    apply.Rules
	DryRun   bool
	Yes      bool
	Wait     bool
	KeepCRDs bool // of the Multi-Cluster Services API, which may belong to other programs
	Timeout  time.Duration
	Output   string
}

// Run applies a tree to the selected clusters and prints the results. On a terminal it asks for
// confirmation before the first change.
func Run(ctx context.Context, env *cli.Env, args []string, f Flags) error {
	s, err := open(ctx, env, args, f.TreeFlags)
	if err != nil {
		return err
	}
	clusters, err := f.Select(s.clusters)
	if err != nil {
		return err
	}
	if s.published != nil {
		if err := s.verified(ctx, env, clusters, f.TreeFlags); err != nil {
			return err
		}
		if clusters, err = f.Select(s.clusters); err != nil {
			return err
		}
	}
	defer env.Progress("reading the clusters")()
	tree, err := s.build(ctx, env, clusters, f.TreeFlags, f.DryRun)
	if err != nil {
		return err
	}
	o := apply.Options{Rules: f.Rules, DryRun: f.DryRun, KeepCRDs: f.KeepCRDs, Log: env.LogCluster}
	if s.tree == nil { // the signer of a finished tree is unknown
		if o.Signers, err = topofile.Signers(s.set, f.BuildFlags); err != nil {
			return err
		}
	}
	if s.published != nil {
		o.Verify = s.published.Verify
	}
	if f.Wait {
		o.Wait = &apply.Wait{Timeout: f.Timeout}
	}
	var prompt confirmation
	if !f.Yes && !f.DryRun && cli.IsTerminal(env.In) {
		o.Confirm = func(planned []apply.Result) bool { return prompt.confirm(ctx, env, planned) }
	}
	results := apply.All(ctx, tree, clusters, o)
	if prompt.refused {
		return cli.ExitError{Msg: "nothing was applied"}
	}
	if f.Output == "text" {
		err = apply.Print(env.Out, results, f.DryRun)
	} else {
		out := map[string]any{"clusters": results}
		if s.published != nil {
			out["publication"] = s.origin
		}
		if s.newer != nil {
			out["unpublished"] = s.newer
		}
		err = env.Encode(f.Output, out)
	}
	if err != nil {
		return err
	}
	return ResultError(results, f.DryRun)
}

// ResultError returns the error with the exit code of the results: 1 if a cluster refused or
// failed, 2 if clusters could not be reached or, in a dry run, compared.
func ResultError(results []apply.Result, dryRun bool) error {
	failed, unreachable, changes := 0, 0, false
	for _, r := range results {
		if r.Error != "" {
			failed++
		}
		if r.Unreachable {
			unreachable++
		}
		changes = changes || r.Plan != nil && !r.Empty()
	}
	switch {
	case failed > 0 && dryRun:
		return fmt.Errorf("%d of %d clusters could not be compared", failed, len(results))
	case failed > 0 && failed == unreachable:
		return fmt.Errorf("%d of %d clusters could not be reached", failed, len(results))
	case failed > 0:
		return cli.ExitError{Msg: fmt.Sprintf("error: %d of %d clusters failed", failed, len(results))}
	case dryRun && changes:
		return cli.ExitError{}
	}
	return nil
}

// confirmation is the user's answer at a terminal.
type confirmation struct{ refused bool }

// confirm prints the plans and asks for confirmation. It does not ask if nothing would change.
func (g *confirmation) confirm(ctx context.Context, env *cli.Env, planned []apply.Result) bool {
	changes := 0
	for _, r := range planned {
		if r.Error == "" && r.Plan != nil && !r.Empty() {
			changes++
		}
	}
	if changes == 0 {
		return true
	}
	if err := apply.Print(env.Err, planned, true); err != nil {
		g.refused = true
		return false
	}
	g.refused = !env.Confirm(ctx, fmt.Sprintf("Apply this to %s?", humanize.Plural(changes, "cluster")))
	return !g.refused
}
