package apiobjects

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/cluster/listwatch"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/schema/fabric"
)

// ownedKind is the kind of a resource whose objects belong to Hawser if they have Hawser's label.
// It writes each object whole. It restores the label of an object that Hawser wrote.
type ownedKind[S diff.Spec, T metav1.Object] struct {
	*writeContext
	table *resourceCache[T]
	// decode converts an object.
	decode func(T) S
	// write applies one object; seen is the observed object, nil if absent.
	write func(ctx context.Context, c diff.Change[S], seen T) error
}

// Name returns the kind of the resource in lower case.
func (m *ownedKind[S, T]) Name() string { return strings.ToLower(m.table.kind) }

// Version returns a string that changes with the objects.
func (m *ownedKind[S, T]) Version(context.Context) (string, error) { return m.table.stamp() }

// Observe returns the objects with Hawser's label.
func (m *ownedKind[S, T]) Observe(context.Context) ([]S, error) {
	all, err := m.table.snapshot()
	if err != nil {
		return nil, err
	}
	var out []S
	for _, o := range all {
		if isMarked(o) {
			out = append(out, m.decode(o))
		}
	}
	return out, nil
}

// Apply applies the changes, several at once.
func (m *ownedKind[S, T]) Apply(ctx context.Context, list []diff.Change[S]) error {
	all, err := m.table.snapshot()
	if err != nil {
		return err
	}
	return each(ctx, list, func(c diff.Change[S]) error {
		if err := m.checkDelete(c.Op); err != nil {
			return err
		}
		seen, ok := all[c.Key]
		switch {
		case c.Op == diff.Delete && !ok:
			return nil
		case c.Op == diff.Delete:
			return m.table.remove(ctx, seen)
		case ok && !isMarked(seen) && !listwatch.IsFieldManager(seen, fabric.FieldManager):
			return fmt.Errorf("%s %s %w: it has no label %s=%s", m.Name(), c.Key, converge.ErrConflict, fabric.ManagedByLabel, fabric.ManagedByValue)
		case ok && seen.GetDeletionTimestamp() != nil:
			return converge.ErrBlocked{On: "the deletion of the previous object"}
		}
		return m.write(ctx, c, seen)
	})
}

func isMarked(o metav1.Object) bool {
	return o.GetLabels()[fabric.ManagedByLabel] == fabric.ManagedByValue
}
