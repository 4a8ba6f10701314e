package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/internal/massdelete"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/render"
)

// Change is an object to create, update or delete.
type Change struct {
	Op diff.Op `json:"op"`
	kubeclient.ID
	Fields []Field `json:"fields,omitempty"` // of Update: changed fields
	// ConflictsWith are the other field managers that applied the object.
	ConflictsWith []string `json:"conflictsWith,omitempty"`

	Object *unstructured.Unstructured `json:"-"`
	UID    types.UID                  `json:"-"` // of the existing object
}

// Field is a changed value. Values of Secrets are masked.
type Field struct {
	Path string `json:"path"`
	Have string `json:"have,omitempty"`
	Want string `json:"want,omitempty"`
	// Managers own the current value, and are not hawser apply.
	Managers []string `json:"managers,omitempty"`
}

// SkippedObject is an object that is not changed, with the reason.
type SkippedObject struct {
	kubeclient.ID
	Reason string `json:"reason"`
}

// Plan has the changes that applying a tree makes to a cluster, in order.
type Plan struct {
	Changes   []Change        `json:"changes"`
	Unchanged int             `json:"unchanged"`
	Skipped   []SkippedObject `json:"skipped,omitempty"`  // objects of the tree that this plan omits
	Retained  []SkippedObject `json:"retained,omitempty"` // objects that left the tree and are not deleted

	want Desired
	have clusterstatus.Inventory
}

// Empty reports whether the plan has no changes.
func (p *Plan) Empty() bool { return len(p.Changes) == 0 }

// Counts returns how many objects are created, changed and deleted.
func (p *Plan) Counts() (created, changed, deleted int) {
	for _, c := range p.Changes {
		switch c.Op {
		case diff.Create:
			created++
		case diff.Delete:
			deleted++
		default:
			changed++
		}
	}
	return created, changed, deleted
}

// Rules are checks that the user can disable.
type Rules struct {
	AllowMassDelete bool
	// AllowOtherCluster allows a first apply to a cluster that differs from the topology's
	// cluster.
	AllowOtherCluster bool
}

// NewPlan compares a cluster with the desired objects. It applies each object as a dry run, so the
// plan includes defaults, admission and the fields of other managers. It changes no object.
func NewPlan(ctx context.Context, c *kubeclient.Client, want Desired, rules Rules) (*Plan, error) {
	have, err := clusterstatus.ReadInventory(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := want.check(have); err != nil {
		return nil, err
	}
	if have.Cluster == "" && !rules.AllowOtherCluster && want.member.Name != "" {
		if err := checkSameCluster(ctx, c, want); err != nil {
			return nil, err
		}
	}
	p := &Plan{Changes: []Change{}, want: want, have: have}
	if err := planObjects(ctx, c, p); err != nil {
		return nil, err
	}
	if err := planPins(ctx, c, p); err != nil {
		return nil, err
	}
	if err := planIdentity(ctx, c, p); err != nil {
		return nil, err
	}
	if want.hasDelivery() {
		return p, nil
	}
	var errs []error
	// Objects that left the tree.
	for _, id := range slices.Backward(slices.SortedFunc(slices.Values(p.have.Objects), kubeclient.CompareIDs)) {
		if p.want.contains(id) {
			continue
		}
		have, err := c.Get(ctx, id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if have == nil || have.GetDeletionTimestamp() != nil {
			continue
		}
		if reason := retainReason(have); reason != "" {
			p.Retained = append(p.Retained, SkippedObject{ID: id, Reason: reason})
			continue
		}
		p.Changes = append(p.Changes, Change{Op: diff.Delete, ID: id, UID: have.GetUID()})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if rules.AllowMassDelete || want.Decommission {
		return p, nil
	}
	return p, guard(ctx, c, p)
}

// guard returns an error if the plan violates the mass deletion rule.
func guard(ctx context.Context, c *kubeclient.Client, p *Plan) error {
	tree, err := clusterstatus.Published(ctx, c)
	if err != nil {
		return err
	}
	var before, removed, deleted []string
	if f, err := render.FabricOf(tree); err == nil { // ignore an unreadable fabric, which has nothing to lose
		before = f.ClusterNames()
	}
	for _, name := range before {
		if !slices.Contains(p.want.Clusters, name) {
			removed = append(removed, name)
		}
	}
	for _, change := range p.Changes {
		if change.Op == diff.Delete {
			deleted = append(deleted, change.ID.String())
		}
	}
	return errors.Join(
		massdelete.Check("the tree removes", "clusters", len(before), removed),
		massdelete.Check("the tree removes", "objects", len(p.have.Objects), deleted))
}

// outcome is the planned result for one object of the tree.
type outcome struct {
	change  *Change
	skipped *SkippedObject
}

func planObjects(ctx context.Context, c *kubeclient.Client, p *Plan) error {
	namespaces := map[string]bool{} // usable namespaces: they exist and are not being deleted
	for _, o := range p.want.Objects {
		namespace := o.GetNamespace()
		if _, known := namespaces[namespace]; known || namespace == "" {
			continue
		}
		have, err := c.Get(ctx, kubeclient.ID{Version: "v1", Kind: kubeclient.KindNamespace, Name: namespace})
		if err != nil {
			return err
		}
		namespaces[namespace] = have != nil && have.GetDeletionTimestamp() == nil
	}
	outcomes := make([]outcome, len(p.want.Objects))
	errs := make([]error, len(p.want.Objects))
	var group errgroup.Group
	group.SetLimit(kubeclient.RequestsAtOnce)
	for i, o := range p.want.Objects {
		group.Go(func() error {
			outcomes[i], errs[i] = planObject(ctx, c, p.want, o, namespaces)
			return nil
		})
	}
	_ = group.Wait() // every function returns nil; the errors are in errs
	for _, out := range outcomes {
		switch {
		case out.change != nil:
			p.Changes = append(p.Changes, *out.change)
		case out.skipped != nil:
			p.Skipped = append(p.Skipped, *out.skipped)
		default:
			p.Unchanged++
		}
	}
	return errors.Join(errs...)
}

func planObject(ctx context.Context, c *kubeclient.Client, want Desired, o *unstructured.Unstructured, namespaces map[string]bool) (outcome, error) {
	id := kubeclient.IDOf(o)
	if namespace := id.Namespace; namespace != "" && !namespaces[namespace] {
		if want.contains(kubeclient.ID{Kind: kubeclient.KindNamespace, Name: namespace}) {
			return outcome{change: &Change{Op: diff.Create, ID: id, Object: o}}, nil
		}
		return outcome{skipped: &SkippedObject{ID: id, Reason: "there is no namespace " + namespace + " yet: the next apply tries again"}}, nil
	}
	have, err := c.Get(ctx, id)
	if err != nil {
		return outcome{}, err
	}
	dryRun, err := c.Apply(ctx, o, true)
	if errors.Is(err, kubeclient.ErrNoKind) && slices.ContainsFunc(want.Objects, func(o *unstructured.Unstructured) bool {
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		return o.GetKind() == kubeclient.KindCRD && group == id.Group && kind == id.Kind
	}) {
		return outcome{change: &Change{Op: diff.Create, ID: id, Object: o}}, nil
	}
	if errors.Is(err, kubeclient.ErrNoKind) && id.Kind == kubeclient.KindServiceExport {
		return outcome{skipped: &SkippedObject{ID: id, Reason: "the cluster has no such kind, and this leaves it to others: the next apply tries again"}}, nil
	}
	if err != nil {
		return outcome{}, err
	}
	if have == nil {
		return outcome{change: &Change{Op: diff.Create, ID: id, Object: o}}, nil
	}
	return compare(o, dryRun, have)
}

// compare returns the change from have to the dry run's result, if they differ.
func compare(o, dryRun, have *unstructured.Unstructured) (outcome, error) {
	id := kubeclient.IDOf(o)
	w, h := views(id, dryRun, have)
	changes, err := diff.Compute([]view{w}, []view{h})
	if err != nil {
		return outcome{}, fmt.Errorf("compare %s: %w", id, err)
	}
	out := &Change{Op: diff.Update, ID: id, Object: o, UID: have.GetUID()}
	if OwnFields(have) == "" {
		out.ConflictsWith = managers(have)
	}
	if len(changes) == 0 {
		// Field ownership may differ while all values are equal: another manager set the
		// field before, or owns a field that left the tree.
		if OwnFields(have) == OwnFields(dryRun) {
			return outcome{}, nil
		}
		return outcome{change: out}, nil
	}
	// Field managers other than Hawser's (managedFields, KEP-555), by field path in the format
	// of joined.
	managersOf := map[string][]string{}
	for _, entry := range have.GetManagedFields() {
		if entry.Manager == kubeclient.FieldManager || entry.FieldsV1 == nil || entry.Subresource == "status" {
			continue
		}
		var set map[string]any
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &set) != nil {
			continue
		}
		found := map[string]bool{}
		addOwned(set, nil, have.Object, found)
		for path := range found {
			if !slices.Contains(managersOf[path], entry.Manager) {
				managersOf[path] = append(managersOf[path], entry.Manager)
			}
		}
	}
	for _, list := range managersOf {
		slices.Sort(list)
	}
	for _, d := range changes[0].Deltas() {
		out.Fields = append(out.Fields, Field{Path: d.Name, Have: d.Have, Want: d.Want, Managers: managersOf[d.Name]})
	}
	return outcome{change: out}, nil
}

// retainReason returns why an object that left the tree is not deleted; empty if it is deleted.
func retainReason(o *unstructured.Unstructured) string {
	switch o.GetKind() {
	case kubeclient.KindNamespace:
		return "a namespace goes with all that is in it: delete it by hand"
	case kubeclient.KindCRD:
		return "a definition goes with all objects of its kind: delete it by hand"
	}
	for name, value := range kubeclient.LabelsAndAnnotations(o) {
		if strings.HasSuffix(name, "/prune") && value == "disabled" {
			return "it says " + name + ": disabled"
		}
	}
	if OwnFields(o) != "" {
		return ""
	}
	return "hawser apply owns no field of it anymore"
}
