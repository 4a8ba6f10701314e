// Package uninstall removes Hawser from a cluster.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
)

// Options are the options of Run.
type Options struct {
	DryRun  bool
	Force   bool // continue if agents do not report
	Foreign bool // continue if Flux or Argo CD manages the objects
	CRDs    bool // also delete unused CRDs of the Multi-Cluster Services API
	Timeout time.Duration
	Log     func(cluster, message string)

	cluster string
	have    clusterstatus.Inventory
}

func (r *Options) log(message string) { r.Log(r.cluster, message) }

// ErrManagedByGitOps is returned if Flux or Argo CD would recreate the deleted objects.
var ErrManagedByGitOps = errors.New("it would be brought back")

// Run removes Hawser from a cluster. The agents undo their changes on the nodes and in the API.
// Then Run deletes all objects of Hawser, the namespace last. Foreign objects are never touched. An
// interrupted run can be repeated.
func Run(ctx context.Context, c *kubeclient.Client, r Options) (*apply.Plan, error) {
	r.cluster = c.Name
	if err := c.Ping(ctx); err != nil {
		return nil, err
	}
	var err error
	if r.have, err = clusterstatus.ReadInventory(ctx, c); err != nil {
		return nil, err
	}
	if r.have.Cluster != "" && r.have.Cluster != c.Name {
		return nil, fmt.Errorf("this is cluster %s of clusterset %s by its inventory, not %s: is the context right?",
			r.have.Cluster, r.have.Clusterset, c.Name)
	}
	p, err := planRemoval(ctx, c, r)
	if err != nil || r.DryRun {
		return p, err
	}
	return p, execute(ctx, c, p, &r)
}

// planRemoval plans the deletion of all objects of Hawser, in order.
func planRemoval(ctx context.Context, c *kubeclient.Client, r Options) (*apply.Plan, error) {
	p := &apply.Plan{Changes: []apply.Change{}}
	for _, find := range finders(r) {
		list, err := find(ctx, c)
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			addObject(p, o, r)
		}
	}
	for _, change := range p.Changes {
		if change.Kind != kubeclient.KindDaemonSet || r.Foreign {
			continue
		}
		if manager := gitopsOwner(change.Object); manager != "" {
			return nil, fmt.Errorf("%w: %s is managed by %s: delete or suspend that first (--yes continues anyway)", ErrManagedByGitOps, change.ID, manager)
		}
	}
	return p, nil
}

// addObject adds the deletion of an object to the plan. CRDs of other API groups are retained
// unless r.CRDs is set.
func addObject(p *apply.Plan, o unstructured.Unstructured, r Options) {
	id := kubeclient.IDOf(&o)
	same := func(change apply.Change) bool { return change.Key() == id.Key() }
	if slices.ContainsFunc(p.Changes, same) {
		return
	}
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	if o.GetKind() == kubeclient.KindCRD && group != hawserGroup && !r.CRDs {
		if !slices.ContainsFunc(p.Retained, func(l apply.SkippedObject) bool { return l.Key() == id.Key() }) {
			p.Retained = append(p.Retained, apply.SkippedObject{ID: id, Reason: "others may use it (--crds deletes it if no object of its kind is left)"})
		}
		return
	}
	p.Changes = append(p.Changes, apply.Change{Op: diff.Delete, ID: id, Object: &o, UID: o.GetUID()})
}

// gitopsOwner returns the tool that would recreate an object: Flux and Argo CD label their objects.
func gitopsOwner(o *unstructured.Unstructured) string {
	all := kubeclient.LabelsAndAnnotations(o)
	switch {
	case all["kustomize.toolkit.fluxcd.io/name"] != "":
		return "Flux's Kustomization " + all["kustomize.toolkit.fluxcd.io/namespace"] + "/" + all["kustomize.toolkit.fluxcd.io/name"]
	case all["argocd.argoproj.io/tracking-id"] != "":
		return "Argo CD (" + all["argocd.argoproj.io/tracking-id"] + ")"
	}
	return ""
}

// execute deletes the objects of a plan.
func execute(ctx context.Context, c *kubeclient.Client, p *apply.Plan, r *Options) error {
	sets, rest := apply.SplitKind(p.Changes, kubeclient.KindDaemonSet)
	if len(sets) > 0 {
		r.log("decommissioning the agents")
		if err := decommission(ctx, c, r); err != nil && !r.Force {
			return err
		} else if err != nil {
			r.log("continuing (--force): " + kubeclient.ErrorText(err))
		}
	}
	r.log(fmt.Sprintf("deleting %d objects", len(p.Changes)))
	if _, err := apply.DeleteAll(ctx, c, sets); err != nil {
		return err
	}
	if err := waitDeleted(ctx, c, *r, "the pods are gone", func(ctx context.Context) (int, error) {
		list, err := c.AgentPods(ctx)
		return len(list), err
	}); err != nil {
		return err
	}
	// Remove the annotations of agents on ServiceExports that an agent did not remove itself.
	list, err := c.List(ctx, kubeclient.MCSKind(kubeclient.KindServiceExport), "", "")
	if err != nil {
		return err
	}
	var errs []error
	for i := range list {
		errs = append(errs, cleanExport(ctx, c, &list[i]))
	}
	if err := errors.Join(append(errs, restoreDNS(ctx, c, r))...); err != nil {
		return err
	}
	namespaces, rest := apply.SplitKind(rest, kubeclient.KindNamespace)
	definitions, rest := apply.SplitKind(rest, kubeclient.KindCRD)
	if _, err := apply.DeleteAll(ctx, c, rest); err != nil {
		return err
	}
	if err := deleteDefinitions(ctx, c, p, definitions); err != nil {
		return err
	}
	if _, err := apply.DeleteAll(ctx, c, namespaces); err != nil {
		return err
	}
	return waitDeleted(ctx, c, *r, "the namespace is gone", func(ctx context.Context) (int, error) {
		o, err := c.Get(ctx, kubeclient.NamespaceID())
		if o == nil || len(namespaces) == 0 {
			return 0, err
		}
		return 1, err
	})
}

// deleteDefinitions deletes the CRDs of Hawser, and unused CRDs of the Multi-Cluster Services API.
func deleteDefinitions(ctx context.Context, c *kubeclient.Client, p *apply.Plan, list []apply.Change) error {
	for _, change := range list {
		group, _, _ := unstructured.NestedString(change.Object.Object, "spec", "group")
		if group != hawserGroup {
			kind, _, _ := unstructured.NestedString(change.Object.Object, "spec", "names", "kind")
			mapping, err := c.Mapping(schema.GroupKind{Group: group, Kind: kind})
			if err != nil {
				return fmt.Errorf("look for objects of %s: %w", change.Name, err)
			}
			remaining, err := c.List(ctx, mapping.GroupVersionKind, "", "")
			if err != nil {
				return err
			}
			if len(remaining) > 0 {
				p.Retained = append(p.Retained, apply.SkippedObject{ID: change.ID, Reason: fmt.Sprintf("there are %d objects of its kind, which are not Hawser's", len(remaining))})
				p.Changes = slices.DeleteFunc(p.Changes, func(o apply.Change) bool { return o.Key() == change.Key() })
				continue
			}
		}
		if err := c.Delete(ctx, change.ID, change.UID); err != nil {
			return err
		}
	}
	return nil
}

// waitDeleted waits until count returns 0. condition describes that state.
func waitDeleted(ctx context.Context, c *kubeclient.Client, r Options, condition string, count func(context.Context) (int, error)) error {
	reported := false
	err := kubeclient.Poll(ctx, r.Timeout, func(ctx context.Context) (bool, error) {
		remaining, err := count(ctx)
		if err == nil && remaining > 0 && !reported {
			r.log("waiting until " + condition)
			reported = true
		}
		return err == nil && remaining == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w", condition, err)
	}
	return nil
}
