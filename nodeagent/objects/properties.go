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

// newProperties makes the kind of ClusterProperties.
func newProperties(turn *turn, table *table) *marked[Property] {
	return &marked[Property]{
		turn: turn, table: table, have: haveProperty,
		write: func(ctx context.Context, c diff.Change[Property], seen *unstructured.Unstructured) error {
			o := table.body("", c.Want.Name)
			if seen != nil {
				o.SetUID(seen.GetUID())
			}
			o.SetLabels(map[string]string{managedBy: manager})
			o.Object["spec"] = map[string]any{"value": c.Want.Value}
			return table.apply(ctx, o, seen != nil)
		},
	}
}

func haveProperty(o *unstructured.Unstructured) (Property, error) {
	value, _, _ := unstructured.NestedString(o.Object, "spec", "value") // what is no text is not what it should be
	return Property{Name: o.GetName(), Value: value}, nil
}
