package applytree

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/load"
)

// TreeFlags select the tree to apply.
type TreeFlags struct {
	topofile.BuildFlags
	Tree   string
	Repo   string
	Branch string
	Ref    string // topology branch of Repo
	// Signers is the file of --signers, for Repo.
	Signers string
}

// treeSource is a tree to apply, or the topology to build it from.
type treeSource struct {
	tree      render.Tree // nil = build it
	clusters  []string
	topology  topofile.File
	set       *schema.ClusterSet  // of topology
	published *baseline.Published // commit of tree; nil = no commit
	origin    baseline.Origin     // description of from
	newer     *baseline.Unpublished
}

// open reads the files that the arguments and flags name. It does not build a topology yet, because
// the build needs the objects in the clusters.
func open(ctx context.Context, env *cli.Env, args []string, f TreeFlags) (treeSource, error) {
	var s treeSource
	sources := len(args)
	for _, source := range []string{env.File, f.Tree, f.Repo} {
		if source != "" {
			sources++
		}
	}
	if sources > 1 {
		return s, errors.New("name one of a topology, --tree and --repo")
	}
	switch {
	case f.Tree != "":
		dir, err := topofile.ReadRendered(f.Tree)
		if err != nil {
			return s, err
		}
		if s.tree = dir.Tree; len(apply.Clusters(s.tree)) == 0 {
			return s, fmt.Errorf("--tree %s: there is no clusters/<name>/kustomization.yaml in it (hawser render --out writes such a directory)", f.Tree)
		}
	case f.Repo != "":
		// This tree only lists the clusters that have signers to read: verified replaces
		// it.
		in := baseline.Options{Address: f.Repo, Branch: f.Branch, Flag: "--branch", Rendered: true}
		p, err := in.Load(ctx)
		if err != nil {
			return s, err
		}
		if p.Commit == "" {
			return s, fmt.Errorf("--repo %s: nothing is published on branch %s; next: hawser bootstrap, or git push if a reconciler runs", f.Repo, f.Branch)
		}
		for _, text := range p.Notes {
			_, _ = fmt.Fprintln(env.Err, text)
		}
		s.tree, s.published = p.Tree, &p
	default:
		t, err := topofile.Read(env, args)
		if err != nil {
			return s, err
		}
		set, _, list := load.Topology(t.Path, t.Raw) // the build prints the warnings
		if list.HasErrors() {
			return s, cli.FindingsError{List: list, Files: t.Texts()}
		}
		s.topology, s.set, s.clusters = t, set, set.ClusterNames()
		return s, nil
	}
	s.clusters = apply.Clusters(s.tree)
	return s, nil
}

// verified replaces the tree of --repo by the newest commit that the signers of --signers and the
// pinned signers of all clusters accept. Without any signers it warns. It prints the commit. It
// warns if the topology branch has a newer commit.
func (s *treeSource) verified(ctx context.Context, env *cli.Env, clusters []*kubeclient.Client, f TreeFlags) error {
	verify, err := baseline.Verifiers(f.Signers, "", topofile.BuildFlags{})
	if err != nil {
		return err
	}
	for _, pins := range apply.PinsIn(ctx, clusters) {
		v, err := baseline.NewVerifier("Secret "+render.TrustSecret+" of cluster "+pins.Cluster, pins.Raw)
		if err != nil {
			continue // the plan of that cluster refuses its pins
		}
		verify = append(verify, v)
	}
	in := baseline.Options{Address: f.Repo, Branch: f.Branch, Flag: "--branch", Verify: verify, Notice: true}
	p, err := in.Load(ctx)
	if err != nil {
		return err
	}
	for _, text := range p.Notes {
		if !slices.Contains(s.published.Notes, text) { // open has printed it
			_, _ = fmt.Fprintln(env.Err, text)
		}
	}
	s.tree, s.published, s.clusters = p.Tree, &p, apply.Clusters(p.Tree)
	s.origin, s.newer, err = p.Origin(ctx, f.Repo, f.Ref)
	_, _ = fmt.Fprintln(env.Err, s.origin.Line())
	switch {
	case err != nil:
		_, _ = fmt.Fprintf(env.Err, "warning: cannot check branch %s for unpublished commits: %v\n", f.Ref, err)
	case s.newer != nil:
		_, _ = fmt.Fprintln(env.Err, "warning:", s.newer.Line())
	}
	return nil
}

// build returns the tree. A tree from a topology reuses the sealed keys in the clusters. Without a root key
// it can be built only if no new key is needed. If clusters run different images, a dry run compares
// them with the published image.
func (s treeSource) build(ctx context.Context, env *cli.Env, clusters []*kubeclient.Client, f TreeFlags, dryRun bool) (render.Tree, error) {
	if s.tree != nil {
		return s.tree, nil
	}
	have, err := clusterstatus.PublishedIn(ctx, clusters)
	if err != nil && s.set.Spec.Agent.Image == "" && f.Image == "" {
		if !dryRun {
			return nil, err
		}
		f.Image = s.publishedImage(ctx, have)
		_, _ = fmt.Fprintf(env.Err, "warning: %v\nwarning: compared with %s\n", err, f.Image)
	}
	in, err := topofile.BuildInput(env, s.topology, have, f.BuildFlags)
	if err != nil {
		return nil, err
	}
	in.Preview = in.Root == nil
	built, list := reconciler.Build(in)
	if list.HasErrors() {
		return nil, cli.FindingsError{List: list, Files: s.topology.Texts()}
	}
	if len(built.Stale) > 0 {
		env.Findings(reconciler.WithPositions(built.Stale, built.Source), s.topology.Texts())
		return nil, cli.ExitError{Msg: "error: the lock is missing allocations: run hawser allocate and commit it"}
	}
	env.Findings(built.Warnings, s.topology.Texts())
	return built.Tree, nil
}

// publishedImage returns the image of the agents on the publish branch, otherwise the image of a
// cluster.
func (s treeSource) publishedImage(ctx context.Context, have render.Tree) string {
	p, err := baseline.Options{File: s.topology.Path, Branch: reconciler.DefaultPublishBranch}.Load(ctx)
	if image := render.ImageOf(p.Tree); err == nil && image != "" {
		return image
	}
	return render.ImageOf(have)
}
