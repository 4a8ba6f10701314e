// Package apply applies a rendered tree to clusters that have neither Flux nor Argo CD. It uses
// server-side apply with one field manager. An inventory of the applied objects identifies the
// objects that left the tree. A plan is computed once, then printed or executed.
package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric/trust"
)

// Result is the result of one cluster.
type Result struct {
	Cluster string `json:"cluster"`
	Context string `json:"context"`
	*Plan
	Applied bool   `json:"applied"`         // the plan was executed
	Ready   string `json:"ready,omitempty"` // last progress of the wait
	Error   string `json:"error,omitempty"`
	// Unreachable reports whether the API server could not be reached.
	Unreachable bool `json:"unreachable,omitempty"`
}

// Options are the options for all clusters.
type Options struct {
	Rules
	DryRun bool
	// KeepCRDs does not change the CRDs of the Multi-Cluster Services API, even if the tree has
	// them.
	KeepCRDs bool
	// Signers are pinned in clusters that have no pinned signers yet. They are public keys in
	// authorized_keys format.
	Signers []string
	// Setups are the additional objects of clusters, by cluster name.
	Setups map[string]Setup
	// Verify checks the source of the tree with the pins of a cluster. If it returns an error,
	// the cluster is not changed. nil = there is no source to verify.
	Verify func(cluster string, pins []byte) error
	Wait   *Wait // nil = do not wait
	// Log reports progress. It must be safe for concurrent use.
	Log func(cluster, message string)
	// Confirm is called once before the first change, with the plans of all clusters. If it
	// returns false, no cluster is changed. nil = apply without confirmation, and without
	// waiting for the plans of other clusters.
	Confirm func(planned []Result) bool
}

// All applies a tree to all clusters concurrently. An unreachable cluster, or a cluster that
// rejects an object, does not delay the others.
func All(ctx context.Context, tree render.Tree, clusters []*kubeclient.Client, o Options) []Result {
	jobs, out := make([]job, len(clusters)), make([]Result, len(clusters))
	step := func(i int, run func(context.Context, Options) error) {
		if out[i].Error == "" {
			if err := run(ctx, o); err != nil {
				out[i].Error, out[i].Unreachable = kubeclient.ErrorText(err), kubeclient.IsUnreachable(err)
			}
		}
	}
	kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) {
		out[i] = Result{Cluster: c.Name, Context: c.Context}
		jobs[i] = job{cluster: c, tree: tree, result: &out[i]}
		step(i, jobs[i].plan)
		if o.Confirm == nil && !o.DryRun {
			step(i, jobs[i].execute)
		}
	})
	if o.Confirm != nil && !o.DryRun && o.Confirm(out) {
		kubeclient.ForEach(clusters, func(i int, _ *kubeclient.Client) { step(i, jobs[i].execute) })
	}
	return out
}

// job is the work on one cluster.
type job struct {
	cluster *kubeclient.Client
	tree    render.Tree
	want    Desired
	result  *Result
}

func (j *job) plan(ctx context.Context, o Options) (err error) {
	if j.want, err = DesiredState(j.tree, j.cluster.Name); err != nil {
		return err
	}
	if o.KeepCRDs {
		j.want.removeSharedCRDs()
	}
	j.want.Pins = trust.PinFile(j.want.Clusterset, j.cluster.Name, o.Signers)
	j.want.verify = o.Verify
	if setup, ok := o.Setups[j.cluster.Name]; ok {
		j.want.addSetup(setup)
	}
	j.result.Plan, err = NewPlan(ctx, j.cluster, j.want, o.Rules)
	return err
}

func (j *job) execute(ctx context.Context, o Options) (err error) {
	c, r := j.cluster, j.result
	isPartial := func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kubeclient.KindSecret && o.GetAnnotations()[render.DigestAnnotation] == render.KnownAfterPublish
	}
	if j.want.partial || slices.ContainsFunc(j.want.Objects, isPartial) {
		return errNeedsRootKey
	}
	if !r.Empty() {
		o.Log(c.Name, "applying")
	}
	if err := Execute(ctx, c, r.Plan); err != nil {
		return err
	}
	r.Applied = true
	if o.Wait == nil {
		return nil
	}
	r.Ready, err = clusterstatus.WaitReady(ctx, c, j.want.Digest, o.Wait.Timeout, func(message string) { o.Log(c.Name, message) })
	return err
}

// Print writes the results as text. It writes changes that several clusters have in common once,
// after the names of the clusters. It returns the errors of w.
func Print(w io.Writer, results []Result, dry bool) error {
	var errs []error
	text := func(format string, args ...any) {
		_, err := fmt.Fprintf(w, format, args...)
		errs = append(errs, err)
	}
	clusters := map[string][]string{} // clusters by the text of a change
	for _, r := range results {
		if r.Plan == nil {
			continue
		}
		for _, change := range r.Changes {
			clusters[change.text()] = append(clusters[change.text()], r.Cluster)
		}
	}
	var groups []string // cluster names of each group, in order of appearance
	shared := map[string][]string{}
	for _, r := range results {
		text("cluster %s (context %s): %s\n", r.Cluster, r.Context, r.headline(dry))
		if r.Plan == nil {
			continue
		}
		for _, change := range r.Changes {
			line := change.text()
			members := clusters[line]
			if len(members) == 1 {
				text("%s", line)
				continue
			}
			group := strings.Join(members, ", ")
			if _, known := shared[group]; !known {
				groups = append(groups, group)
			}
			if members[0] == r.Cluster {
				shared[group] = append(shared[group], line)
			}
		}
		for _, skipped := range r.Skipped {
			text("  skipped %s: %s\n", skipped.ID, skipped.Reason)
		}
		for _, skipped := range r.Retained {
			text("  kept %s: %s\n", skipped.ID, skipped.Reason)
		}
	}
	for _, group := range groups {
		text("clusters %s: the same %s\n%s", group, humanize.Plural(len(shared[group]), "object"), strings.Join(shared[group], ""))
	}
	return errors.Join(errs...)
}

// text returns the lines of the change in a printed plan.
func (c Change) text() string {
	var b strings.Builder
	note := ""
	if c.Op == diff.Update && len(c.ConflictsWith) > 0 {
		note = "  # applied by " + strings.Join(c.ConflictsWith, ", ") + " so far"
	}
	fmt.Fprintf(&b, "  %s %s%s\n", c.Op, c.ID, note)
	for _, f := range c.Fields {
		byChange := ""
		if len(f.Managers) > 0 {
			byChange = "  # held by " + strings.Join(f.Managers, ", ")
		}
		fmt.Fprintf(&b, "      %s: %s -> %s%s\n", f.Path, cmp.Or(f.Have, "(none)"), cmp.Or(f.Want, "(none)"), byChange)
	}
	return b.String()
}

func (r Result) headline(dry bool) string {
	if r.Plan == nil || r.Error != "" && !r.Applied {
		return "failed: " + r.Error
	}
	created, changed, deleted := r.Counts()
	out := fmt.Sprintf("%d created, %d changed, %d deleted, %d unchanged", created, changed, deleted, r.Unchanged)
	if dry {
		out = fmt.Sprintf("%d to create, %d to change, %d to delete, %d unchanged", created, changed, deleted, r.Unchanged)
	}
	if r.Error != "" {
		return out + "; " + r.Error
	}
	if r.Ready != "" {
		out += "; " + r.Ready
	}
	return out
}

// Wait bounds the wait until the agents are ready with the fabric of the tree.
type Wait struct{ Timeout time.Duration }
