package objects

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
)

// marked is the kind of a resource whose objects are ours if they carry our mark,
// each of them whole. One that we wrote, and that lost its mark, is taken back.
type marked[S diff.Spec] struct {
	*turn
	table *table
	// have reads an object.
	have func(*unstructured.Unstructured) (S, error)
	// write makes one as it should be; seen is the one that is there, nil = none.
	write func(ctx context.Context, c diff.Change[S], seen *unstructured.Unstructured) error
}

// Name is that of the API's kind, in lower case.
func (m *marked[S]) Name() string { return strings.ToLower(m.table.kind) }

// Stamp changes with the objects.
func (m *marked[S]) Stamp(context.Context) (string, error) { return m.table.stamp() }

// Observe gives those that carry our mark.
func (m *marked[S]) Observe(context.Context) ([]S, error) {
	all, err := m.table.all()
	if err != nil {
		return nil, err
	}
	var out []S
	for _, o := range all {
		if !isMarked(o) {
			continue
		}
		have, err := m.have(o)
		if err != nil {
			return nil, err
		}
		out = append(out, have)
	}
	return out, nil
}

// Apply makes the changes, several at once.
func (m *marked[S]) Apply(ctx context.Context, list []diff.Change[S]) error {
	all, err := m.table.all()
	if err != nil {
		return err
	}
	return each(ctx, list, func(c diff.Change[S]) error {
		if err := m.may(c.Op); err != nil {
			return err
		}
		seen := all[c.Key]
		switch {
		case c.Op == diff.Delete && seen == nil:
			return nil
		case c.Op == diff.Delete:
			return m.table.remove(ctx, seen)
		case seen != nil && !isMarked(seen) && !weWrote(seen):
			return foreign(m.Name(), c.Key)
		case seen != nil && seen.GetDeletionTimestamp() != nil:
			return converge.ErrBlocked{On: "the end of the one before"}
		}
		return m.write(ctx, c, seen)
	})
}

func weWrote(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == FieldManager })
}

func isMarked(o *unstructured.Unstructured) bool { return o.GetLabels()[managedBy] == manager }
