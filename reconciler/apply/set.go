package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric/trust"
)

// Result is what became of one cluster.
type Result struct {
	Cluster string `json:"cluster"`
	Context string `json:"context"`
	*Plan
	Applied bool   `json:"applied"`         // the plan was carried out
	Ready   string `json:"ready,omitempty"` // what a wait saw last
	Error   string `json:"error,omitempty"`
}

// Options say what to do with all clusters.
type Options struct {
	Rules
	DryRun bool
	// KeepCRDs leaves the definitions of the Multi-Cluster Services API alone, whatever
	// the tree says.
	KeepCRDs bool
	// Signers are pinned in clusters that have no pinned signers yet; public keys as
	// authorized_keys has them.
	Signers []string
	// Setups are what clusters get besides what the tree has for them, by their names.
	Setups map[string]Setup
	// Verify decides about the source of the tree with the pins of a cluster; its error
	// leaves the cluster unchanged. nil = no source to verify.
	Verify func(cluster string, pins []byte) error
	Wait   *Wait // nil = do not wait
	// Say reports what goes on; it is called by several goroutines.
	Say func(cluster, what string)
	// Confirm is asked once, with the plans of all clusters, before the first change: without
	// its consent nothing is changed anywhere. nil = no question, and no cluster waits for
	// the plan of another.
	Confirm func(planned []Result) bool
}

// clustersAtOnce bounds how many clusters are worked on at a time.
const clustersAtOnce = 8

// All applies a tree to clusters, all at a time: one that is out of reach, or
// refuses something, holds up no other.
func All(ctx context.Context, tree render.Tree, clusters []*Client, o Options) []Result {
	jobs, out := make([]job, len(clusters)), make([]Result, len(clusters))
	step := func(i int, do func(context.Context, Options) error) {
		if out[i].Error == "" {
			if err := do(ctx, o); err != nil {
				out[i].Error = ErrorText(err)
			}
		}
	}
	ForEach(clusters, func(i int, c *Client) {
		out[i] = Result{Cluster: c.Name, Context: c.Context}
		jobs[i] = job{cluster: c, tree: tree, result: &out[i]}
		step(i, jobs[i].plan)
		if o.Confirm == nil && !o.DryRun {
			step(i, jobs[i].carry)
		}
	})
	if o.Confirm != nil && !o.DryRun && o.Confirm(out) {
		ForEach(clusters, func(i int, _ *Client) { step(i, jobs[i].carry) })
	}
	return out
}

// ForEach calls do for all clusters, several at a time.
func ForEach(clusters []*Client, do func(i int, c *Client)) {
	var group errgroup.Group
	group.SetLimit(clustersAtOnce)
	for i, c := range clusters {
		group.Go(func() error { do(i, c); return nil })
	}
	_ = group.Wait() // every function gives nil
}

// job is the work on one cluster.
type job struct {
	cluster *Client
	tree    render.Tree
	want    Desired
	result  *Result
}

func (j *job) plan(ctx context.Context, o Options) (err error) {
	if j.want, err = DesiredState(j.tree, j.cluster.Name); err != nil {
		return err
	}
	if o.KeepCRDs {
		j.want.leaveDefinitions()
	}
	j.want.Pins = trust.PinFile(j.want.Clusterset, j.cluster.Name, o.Signers)
	j.want.verify = o.Verify
	if setup, ok := o.Setups[j.cluster.Name]; ok {
		j.want.setUp(setup)
	}
	j.result.Plan, err = j.cluster.Plan(ctx, j.want, o.Rules)
	return err
}

func (j *job) carry(ctx context.Context, o Options) (err error) {
	c, r := j.cluster, j.result
	if j.want.later || slices.ContainsFunc(j.want.Objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kindSecret && o.GetAnnotations()[render.DigestAnnotation] == render.KnownAfterPublish
	}) {
		return errNeedsRootKey
	}
	if !r.Empty() {
		o.Say(c.Name, "applying")
	}
	if err := c.Execute(ctx, r.Plan); err != nil {
		return err
	}
	r.Applied = true
	if o.Wait == nil {
		return nil
	}
	r.Ready, err = c.wait(ctx, j.want, *o.Wait, func(what string) { o.Say(c.Name, what) })
	return err
}

// ErrorText gives an error on one line, and says what to look at when a cluster
// cannot be reached.
func ErrorText(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	for _, sign := range []string{"connection refused", "no such host", "i/o timeout", "no route to host", "context deadline exceeded", "Client.Timeout"} {
		if strings.Contains(text, sign) {
			return "cannot be reached: " + text
		}
	}
	return text
}

// Print writes results as text. It gives the first error of w.
func Print(w io.Writer, results []Result, dry bool) error {
	var errs []error
	text := func(format string, args ...any) {
		_, err := fmt.Fprintf(w, format, args...)
		errs = append(errs, err)
	}
	for _, r := range results {
		text("cluster %s (context %s): %s\n", r.Cluster, r.Context, r.headline(dry))
		if r.Plan == nil {
			continue
		}
		for _, change := range r.Changes {
			note := ""
			if change.Op == diff.Update && len(change.ConflictsWith) > 0 {
				note = "  # applied by " + strings.Join(change.ConflictsWith, ", ") + " so far"
			}
			text("  %s %s%s\n", change.Op, change.ID, note)
			for _, f := range change.Fields {
				by := ""
				if len(f.Managers) > 0 {
					by = "  # held by " + strings.Join(f.Managers, ", ")
				}
				text("      %s: %s -> %s%s\n", f.Path, cmp.Or(f.Have, "(none)"), cmp.Or(f.Want, "(none)"), by)
			}
		}
		for _, left := range r.Skipped {
			text("  skipped %s: %s\n", left.ID, left.Why)
		}
		for _, left := range r.Retained {
			text("  kept %s: %s\n", left.ID, left.Why)
		}
	}
	return errors.Join(errs...)
}

func (r Result) headline(dry bool) string {
	if r.Plan == nil || r.Error != "" && !r.Applied {
		return "failed: " + r.Error
	}
	created, changed, deleted := r.Counts()
	out := fmt.Sprintf("%d created, %d changed, %d deleted, %d as they were", created, changed, deleted, r.Unchanged)
	if dry {
		out = fmt.Sprintf("%d to create, %d to change, %d to delete, %d as they are", created, changed, deleted, r.Unchanged)
	}
	if r.Error != "" {
		return out + "; " + r.Error
	}
	if r.Ready != "" {
		out += "; " + r.Ready
	}
	return out
}
