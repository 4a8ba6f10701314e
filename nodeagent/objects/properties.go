package objects

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/internal/diff"
)

// Property is a ClusterProperty (KEP-2149).
type Property struct {
	Name  string
	Value string
}

// Key is the name.
func (p Property) Key() string { return p.Name }

// Fields gives the value.
func (p Property) Fields() []diff.Field { return []diff.Field{{Name: "value", Value: p.Value}} }

func wantProperties(entries map[string]string) []Property {
	var out []Property
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		out = append(out, Property{Name: name, Value: entries[name]})
	}
	return out
}

// propertyKind is the kind of ClusterProperties.
type propertyKind struct {
	*turn
	table *table
}

// Name is clusterproperty.
func (k *propertyKind) Name() string { return "clusterproperty" }

// Stamp changes with the objects.
func (k *propertyKind) Stamp(context.Context) (string, error) { return k.table.stamp() }

// Observe gives those that carry our mark.
func (k *propertyKind) Observe(context.Context) ([]Property, error) {
	all, err := k.table.all()
	if err != nil {
		return nil, err
	}
	var out []Property
	for _, o := range all {
		if o.GetLabels()[managedBy] == manager {
			value, _, _ := unstructured.NestedString(o.Object, "spec", "value")
			out = append(out, Property{Name: o.GetName(), Value: value})
		}
	}
	return out, nil
}

// Apply makes the changes.
func (k *propertyKind) Apply(ctx context.Context, list []diff.Change[Property]) error {
	all, err := k.table.all()
	if err != nil {
		return err
	}
	return each(ctx, list, func(c diff.Change[Property]) error {
		seen := all[c.Key]
		switch {
		case c.Op == diff.Delete && seen == nil:
			return nil
		case c.Op == diff.Delete:
			return k.table.remove(ctx, seen)
		case seen != nil && seen.GetLabels()[managedBy] != manager:
			return foreign("clusterproperty", c.Key)
		}
		o := k.table.body("", c.Want.Name)
		if seen != nil {
			o.SetUID(seen.GetUID())
		}
		o.SetLabels(map[string]string{managedBy: manager})
		o.Object["spec"] = map[string]any{"value": c.Want.Value}
		return k.table.apply(ctx, o, seen != nil)
	})
}
