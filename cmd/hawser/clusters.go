package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/load"
)

// clusterFlags say which clusters a command works on, and how to reach them.
type clusterFlags struct {
	access   kubeclient.Kubeconfig
	clusters []string
}

// add adds the flags to a command, or to it and all below it.
func (f *clusterFlags) add(cmd *cobra.Command, below bool) {
	flags := cmd.Flags()
	if below {
		flags = cmd.PersistentFlags()
	}
	f.addAccess(flags)
	flags.StringSliceVar(&f.clusters, "cluster", nil, "only these clusters")
}

// addAccess adds those that say how to reach clusters.
func (f *clusterFlags) addAccess(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.access.Contexts, "context", nil, "CLUSTER=CONTEXT of the kubeconfig, or CONTEXT (default: the context named like the cluster)")
	flags.StringArrayVar(&f.access.Kubeconfigs, "kubeconfig", nil, "kubeconfig file; may be repeated (default: $KUBECONFIG, then ~/.kube/config)")
}

// choose gives the clusters that the flags select out of all.
func (f *clusterFlags) choose(all []string) ([]*kubeclient.Client, error) {
	names, err := f.names(all)
	if err != nil {
		return nil, err
	}
	return f.access.Clusters(names, all)
}

// topologyAndClusters reads a topology, and opens those of its clusters that flags name.
// Warnings are not printed: whoever goes on from here builds the topology, which does.
func (a *app) topologyAndClusters(args []string, f *clusterFlags) (t topology, set *schema.ClusterSet, src *document.Source, clusters []*kubeclient.Client, err error) {
	if t, err = a.readTopology(args); err != nil {
		return t, nil, nil, nil, err
	}
	set, src, list := load.Topology(t.file, t.raw)
	if list.HasErrors() {
		return t, nil, nil, nil, found{list: list, sources: t.files()}
	}
	clusters, err = f.choose(set.ClusterNames())
	return t, set, src, clusters, err
}

func (f *clusterFlags) names(all []string) ([]string, error) {
	if len(f.clusters) == 0 {
		return all, nil
	}
	var names []string
	for _, name := range f.clusters {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("--cluster %s: there is no such cluster, only %s", name, strings.Join(all, ", "))
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// treeFlags say where the tree to apply comes from.
type treeFlags struct {
	buildFlags
	tree   string
	repo   string
	branch string
	// signers is the file of --signers, for repo.
	signers string
}

// treeSource is a tree to apply, or the topology to build it from.
type treeSource struct {
	tree     render.Tree // nil: it is built
	clusters []string
	topology topology
	set      *schema.ClusterSet // of topology
	from     *published         // the commit that tree is from; nil = no commit
}

// open reads what the arguments and flags name. A topology is not built yet:
// what its clusters have already is a part of that.
func (a *app) open(ctx context.Context, args []string, f treeFlags) (treeSource, error) {
	var s treeSource
	if given := len(args) + present(a.file) + present(f.tree) + present(f.repo); given > 1 {
		return s, errors.New("name one of a topology, --tree and --repo")
	}
	switch {
	case f.tree != "":
		dir, err := readRendered(f.tree)
		if err != nil {
			return s, err
		}
		if s.tree = dir.tree; len(apply.Clusters(s.tree)) == 0 {
			return s, fmt.Errorf("--tree %s: there is no clusters/<name>/kustomization.yaml in it (hawser render --out writes such a folder)", f.tree)
		}
	case f.repo != "":
		// The tree says only which clusters to read the signers from: verified replaces it.
		in := publishedInput{address: f.repo, branch: f.branch, flag: "--branch", rendered: true}
		p, err := in.read(ctx)
		if err != nil {
			return s, err
		}
		if p.Commit == "" {
			return s, fmt.Errorf("--repo %s: nothing is published on branch %s", f.repo, f.branch)
		}
		for _, text := range p.says {
			_, _ = fmt.Fprintln(a.err, text)
		}
		s.tree, s.from = p.tree, &p
	default:
		t, err := a.readTopology(args)
		if err != nil {
			return s, err
		}
		set, _, list := load.Topology(t.file, t.raw) // warnings are told when it is built
		if list.HasErrors() {
			return s, found{list: list, sources: t.files()}
		}
		s.topology, s.set, s.clusters = t, set, set.ClusterNames()
		return s, nil
	}
	s.clusters = apply.Clusters(s.tree)
	return s, nil
}

func present(text string) int {
	if text == "" {
		return 0
	}
	return 1
}

// verified replaces the tree of --repo by the newest commit that the signers of --signers and
// the pinned signers of all clusters accept. Without any signers it warns.
func (s *treeSource) verified(ctx context.Context, a *app, clusters []*kubeclient.Client, f treeFlags) error {
	verify, err := verifiers(f.signers, "", buildFlags{})
	if err != nil {
		return err
	}
	for _, pins := range apply.PinsIn(ctx, clusters) {
		v, err := newVerifier("Secret "+render.TrustSecret+" of cluster "+pins.Cluster, pins.Raw)
		if err != nil {
			continue // the plan of that cluster refuses its pins
		}
		verify = append(verify, v)
	}
	in := publishedInput{address: f.repo, branch: f.branch, flag: "--branch", verify: verify, notice: true}
	p, err := in.read(ctx)
	if err != nil {
		return err
	}
	for _, text := range p.says {
		if !slices.Contains(s.from.says, text) { // which open printed
			_, _ = fmt.Fprintln(a.err, text)
		}
	}
	s.tree, s.from, s.clusters = p.tree, &p, apply.Clusters(p.tree)
	return nil
}

// verify refuses a commit that the pins of a cluster do not accept. The plan of each cluster
// calls it, so a cluster that did not answer before is not left out.
func (p *published) verify(cluster string, pins []byte) error {
	v, err := newVerifier("Secret "+render.TrustSecret, pins)
	if err != nil {
		return err
	}
	why, err := v.why(p.store, plumbing.NewHash(p.Commit))
	if err == nil && why != "" {
		err = fmt.Errorf("commit %.12s is not a published commit for cluster %s: %s", p.Commit, cluster, why)
	}
	return err
}

// build gives the tree. One that is built from a topology goes on from what the
// clusters have, so that no key is sealed anew. Without a root key it can be
// built as far as nothing new is needed from it.
func (s treeSource) build(ctx context.Context, a *app, clusters []*kubeclient.Client, f treeFlags) (render.Tree, error) {
	if s.tree != nil {
		return s.tree, nil
	}
	have, err := clusterstatus.PublishedIn(ctx, clusters)
	if err != nil && s.set.Spec.Agent.Image == "" && f.image == "" {
		return nil, err
	}
	in, err := buildInput(s.topology, have, f.buildFlags)
	if err != nil {
		return nil, err
	}
	in.Preview = in.Root == nil
	built, list := reconciler.Build(in)
	if list.HasErrors() {
		return nil, found{list: list, sources: s.topology.files()}
	}
	if len(built.Stale) > 0 {
		a.printFindings(reconciler.WithPositions(built.Stale, built.Source), s.topology.files())
		return nil, answer{"error: the lock is missing allocations: run hawser allocate and commit it"}
	}
	a.printFindings(built.Warnings, s.topology.files())
	return built.Tree, nil
}

// logCluster prints what goes on in a cluster.
func (a *app) logCluster(cluster, what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, _ = fmt.Fprintf(a.err, "%s: %s\n", cluster, what)
}
