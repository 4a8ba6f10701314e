package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hawser.dev/hawser/internal/diff"
)

// Removal says how to take Hawser out of a cluster.
type Removal struct {
	DryRun  bool
	Force   bool // go on without agents that do not answer
	Foreign bool // although Flux or Argo CD keeps it
	CRDs    bool // definitions of the Multi-Cluster Services API too, if nobody uses them
	Timeout time.Duration
	Say     func(cluster, what string)

	cluster string
	have    Inventory
}

func (r *Removal) say(what string) { r.Say(r.cluster, what) }

// ErrManagedByGitOps is returned when something would bring back what is taken out.
var ErrManagedByGitOps = errors.New("it would be brought back")

// Uninstall takes Hawser out of a cluster: the agents undo what they did on their
// nodes and in the API, then everything of Hawser's is deleted, the namespace
// last. What is somebody else's stays. It may end anywhere and be called again.
func (c *Client) Uninstall(ctx context.Context, r Removal) (*Plan, error) {
	r.cluster = c.Name
	if err := c.Ping(ctx); err != nil {
		return nil, err
	}
	var err error
	if r.have, err = c.inventory(ctx); err != nil {
		return nil, err
	}
	if r.have.Cluster != "" && r.have.Cluster != c.Name {
		return nil, fmt.Errorf("this is cluster %s of clusterset %s by its inventory, not %s: is the context right?",
			r.have.Cluster, r.have.Clusterset, c.Name)
	}
	p, err := c.planRemoval(ctx, r)
	if err != nil || r.DryRun {
		return p, err
	}
	return p, c.takeOut(ctx, p, &r)
}

// planRemoval finds all that is Hawser's, in the order in which it is deleted.
func (c *Client) planRemoval(ctx context.Context, r Removal) (*Plan, error) {
	p := &Plan{Changes: []Change{}}
	for _, find := range finders(r) {
		list, err := find(ctx, c)
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			c.sort(p, o, r)
		}
	}
	for _, change := range p.Changes {
		if change.Kind != kindDaemonSet || r.Foreign {
			continue
		}
		if who := gitopsOwner(change.want); who != "" {
			return nil, fmt.Errorf("%w: %s is kept by %s: delete or suspend that first (--yes goes on all the same)", ErrManagedByGitOps, change.ID, who)
		}
	}
	return p, nil
}

// sort puts an object where it belongs in the plan.
func (c *Client) sort(p *Plan, o unstructured.Unstructured, r Removal) {
	id := IDOf(&o)
	same := func(change Change) bool { return change.key() == id.key() }
	if slices.ContainsFunc(p.Changes, same) {
		return
	}
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	if o.GetKind() == kindCRD && group != ownGroup && !r.CRDs {
		if !slices.ContainsFunc(p.Retained, func(l SkippedObject) bool { return l.key() == id.key() }) {
			p.Retained = append(p.Retained, SkippedObject{ID: id, Why: "others may use it (--crds deletes it when nothing of its kind is left)"})
		}
		return
	}
	p.Changes = append(p.Changes, Change{Op: diff.Delete, ID: id, want: &o, uid: o.GetUID()})
}

// gitopsOwner names who would bring an object back: Flux and Argo CD mark what they apply.
func gitopsOwner(o *unstructured.Unstructured) string {
	all := marks(o)
	switch {
	case all["kustomize.toolkit.fluxcd.io/name"] != "":
		return "Flux's Kustomization " + all["kustomize.toolkit.fluxcd.io/namespace"] + "/" + all["kustomize.toolkit.fluxcd.io/name"]
	case all["argocd.argoproj.io/tracking-id"] != "":
		return "Argo CD (" + all["argocd.argoproj.io/tracking-id"] + ")"
	}
	return ""
}

// takeOut carries a removal out.
func (c *Client) takeOut(ctx context.Context, p *Plan, r *Removal) error {
	sets, rest := take(p.Changes, kindDaemonSet)
	if len(sets) > 0 {
		r.say("telling the agents to take everything down")
		if err := c.decommission(ctx, r); err != nil && !r.Force {
			return err
		} else if err != nil {
			r.say("going on: " + ErrorText(err))
		}
	}
	r.say(fmt.Sprintf("deleting %d objects", len(p.Changes)))
	if _, err := c.deleteAll(ctx, sets); err != nil {
		return err
	}
	if err := c.waitDeleted(ctx, *r, "the pods are gone", func(ctx context.Context) (int, error) {
		list, err := c.agents(ctx)
		return len(list), err
	}); err != nil {
		return err
	}
	// What agents wrote on ServiceExports, should an agent not have taken it back itself.
	list, err := c.list(ctx, mcsKind(kindServiceExport), "", "")
	if err != nil {
		return err
	}
	var errs []error
	for i := range list {
		errs = append(errs, c.cleanExport(ctx, &list[i]))
	}
	if err := errors.Join(append(errs, c.restoreDNS(ctx, r))...); err != nil {
		return err
	}
	spaces, rest := take(rest, kindNamespace)
	definitions, rest := take(rest, kindCRD)
	if _, err := c.deleteAll(ctx, rest); err != nil {
		return err
	}
	if err := c.deleteDefinitions(ctx, p, definitions); err != nil {
		return err
	}
	if _, err := c.deleteAll(ctx, spaces); err != nil {
		return err
	}
	return c.waitDeleted(ctx, *r, "the namespace is gone", func(ctx context.Context) (int, error) {
		o, err := c.get(ctx, hawserNamespace())
		if o == nil || len(spaces) == 0 {
			return 0, err
		}
		return 1, err
	})
}

// deleteDefinitions deletes the kinds of Hawser, and others that nobody uses.
func (c *Client) deleteDefinitions(ctx context.Context, p *Plan, list []Change) error {
	for _, change := range list {
		group, _, _ := unstructured.NestedString(change.want.Object, "spec", "group")
		if group != ownGroup {
			kind, _, _ := unstructured.NestedString(change.want.Object, "spec", "names", "kind")
			mapping, err := c.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
			if err != nil {
				return fmt.Errorf("look for objects of %s: %w", change.Name, err)
			}
			left, err := c.list(ctx, mapping.GroupVersionKind, "", "")
			if err != nil {
				return err
			}
			if len(left) > 0 {
				p.Retained = append(p.Retained, SkippedObject{ID: change.ID, Why: fmt.Sprintf("there are %d objects of its kind, which are not Hawser's", len(left))})
				p.Changes = slices.DeleteFunc(p.Changes, func(o Change) bool { return o.key() == change.key() })
				continue
			}
		}
		if err := c.remove(ctx, change.ID, change.uid); err != nil {
			return err
		}
	}
	return nil
}

// waitDeleted waits until none of something is left; what says so.
func (c *Client) waitDeleted(ctx context.Context, r Removal, what string, count func(context.Context) (int, error)) error {
	said := false
	err := poll(ctx, r.Timeout, func(ctx context.Context) (bool, error) {
		left, err := count(ctx)
		if err == nil && left > 0 && !said {
			r.say("waiting until " + what)
			said = true
		}
		return err == nil && left == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w", what, err)
	}
	return nil
}
