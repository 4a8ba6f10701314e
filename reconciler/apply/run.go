package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/render"
)

const (
	// establishedWithin bounds the wait for the API server to serve a kind that was
	// just defined.
	establishedWithin = time.Minute
	pollEvery         = 500 * time.Millisecond
)

// Execute does what a plan says. Everything that can be done is done; what fails
// is tried again by the next apply, which finds in the inventory what became of
// this one: it is written before the first object and after the last.
func (c *Client) Execute(ctx context.Context, p *Plan) error {
	upserts, deletes := p.split()
	spaces, rest := take(upserts, kindNamespace)
	if err := c.applyAll(ctx, spaces); err != nil {
		return err
	}
	// What was applied before and what is about to be, so that nothing is lost track of when
	// this ends half way.
	both := p.want.inventory(p.have.Objects)
	both.Digest = p.have.Digest
	if !p.Empty() && !p.want.follows() && (len(p.have.Objects) == 0 || !sameObjects(both, p.have)) {
		if err := c.keep(ctx, both); err != nil {
			return err
		}
	}
	definitions, rest := take(rest, kindCRD)
	if err := c.applyAll(ctx, definitions); err != nil {
		return err
	}
	if err := c.established(ctx, p.want.Objects, len(upserts) > 0); err != nil {
		return err
	}
	if err := c.applyAll(ctx, rest); err != nil {
		// Nothing is deleted while what may replace it is not there.
		return err
	}
	left, err := c.deleteAll(ctx, deletes)
	return errors.Join(err, c.saveInventory(ctx, p, left))
}

func (p *Plan) split() (upserts, deletes []Change) {
	for _, change := range p.Changes {
		if change.Op == diff.Delete {
			deletes = append(deletes, change)
		} else {
			upserts = append(upserts, change)
		}
	}
	return upserts, deletes
}

func take(changes []Change, kind string) (taken, rest []Change) {
	for _, change := range changes {
		if change.Kind == kind {
			taken = append(taken, change)
		} else {
			rest = append(rest, change)
		}
	}
	return taken, rest
}

// saveInventory writes the inventory of what is there now: the tree, and what could not
// be deleted.
func (c *Client) saveInventory(ctx context.Context, p *Plan, left []ID) error {
	if p.want.follows() {
		return nil
	}
	now := p.want.inventory(left)
	for _, kept := range p.Retained {
		now.Objects = append(now.Objects, kept.ID)
	}
	if sameObjects(now, p.have) && now.Digest == p.have.Digest && now.Cluster == p.have.Cluster {
		return nil
	}
	return c.keep(ctx, now)
}

func sameObjects(a, b Inventory) bool {
	keys := func(i Inventory) []string {
		var out []string
		for _, id := range i.Objects {
			out = append(out, id.line())
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return slices.Equal(keys(a), keys(b))
}

// applyAll applies one object after the other, all of them whatever fails.
func (c *Client) applyAll(ctx context.Context, changes []Change) error {
	var errs []error
	for _, change := range changes {
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		if _, err := c.applyObject(ctx, change.want, false); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (c *Client) deleteAll(ctx context.Context, changes []Change) (left []ID, err error) {
	var errs []error
	for _, change := range changes {
		if err := c.remove(ctx, change.ID, change.uid); err != nil {
			left = append(left, change.ID)
			errs = append(errs, err)
		}
	}
	return left, errors.Join(errs...)
}

// established waits until the API server serves every kind that the tree defines.
func (c *Client) established(ctx context.Context, objects []*unstructured.Unstructured, changed bool) error {
	if !changed {
		return nil
	}
	for _, o := range objects {
		if o.GetKind() != kindCRD {
			continue
		}
		id := IDOf(o)
		err := poll(ctx, establishedWithin, func(ctx context.Context) (bool, error) {
			have, err := c.get(ctx, id)
			return have != nil && condition(have, "Established") == "True", err
		})
		if err != nil {
			return fmt.Errorf("wait until %s is established: %w", id, err)
		}
	}
	c.mapper.Reset()
	// Discovery follows a moment after the condition Established.
	return poll(ctx, establishedWithin, func(context.Context) (bool, error) {
		for _, o := range objects {
			if o.GetKind() != kindCRD {
				continue
			}
			group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
			_, err := c.mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
			if err != nil {
				c.mapper.Reset()
				return false, nil // not yet; the wait is bounded
			}
		}
		return true, nil
	})
}

// condition gives the status of a condition; empty when it has none.
func condition(o *unstructured.Unstructured, name string) string {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range list {
		if c, ok := item.(map[string]any); ok && c["type"] == name {
			status, _ := c["status"].(string)
			return status
		}
	}
	return ""
}

// errWait is returned when something did not happen in time.
var errWait = errors.New("it did not happen in time")

// poll asks until the answer is yes, an error comes, or the time is over.
func poll(ctx context.Context, within time.Duration, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errWait)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		done, err := ask(ctx)
		if ctx.Err() != nil && !done {
			return context.Cause(ctx)
		}
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// hawserNamespace is the namespace of everything that is Hawser's in a cluster.
func hawserNamespace() ID { return ID{Version: "v1", Kind: kindNamespace, Name: render.Namespace} }

// InventoryConfigMap, in the namespace hawser-system, holds what was applied: the
// clusterset, the cluster, the fabric's digest, and one object a line.
const InventoryConfigMap = "hawser-inventory"

// Inventory is what was applied last.
type Inventory struct {
	Clusterset string
	Cluster    string
	Digest     string // of the fabric
	Objects    []ID
}

// inventory reads it; empty when nothing was applied yet.
func (c *Client) inventory(ctx context.Context) (Inventory, error) {
	o, err := c.get(ctx, ID{Version: "v1", Kind: "ConfigMap", Namespace: render.Namespace, Name: InventoryConfigMap})
	if err != nil || o == nil {
		return Inventory{}, err
	}
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return Inventory{}, err
	}
	out := Inventory{Clusterset: data["clusterset"], Cluster: data["cluster"], Digest: data["digest"]}
	for line := range strings.Lines(data["objects"]) {
		id, err := readLine(strings.TrimSpace(line))
		if err != nil {
			return out, err
		}
		out.Objects = append(out.Objects, id)
	}
	return out, nil
}

// keep writes the inventory.
func (c *Client) keep(ctx context.Context, i Inventory) error {
	var lines strings.Builder
	objects := slices.SortedFunc(slices.Values(i.Objects), compareIDs)
	objects = slices.CompactFunc(objects, func(a, b ID) bool { return a.key() == b.key() })
	for _, id := range objects {
		lines.WriteString(id.line() + "\n")
	}
	_, err := c.applyObject(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": InventoryConfigMap, "namespace": render.Namespace,
			"labels": map[string]any{"app.kubernetes.io/part-of": "hawser", "app.kubernetes.io/managed-by": FieldManager},
		},
		"data": map[string]any{"clusterset": i.Clusterset, "cluster": i.Cluster, "digest": i.Digest, "objects": lines.String()},
	}}, false)
	return err
}
