package objects

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// clusterProperty is a ClusterProperty as far as we read it.
type clusterProperty struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Value string `json:"value"`
	} `json:"spec"`
}

// newProperties makes the kind of ClusterProperties.
func newProperties(turn *turn, table *table[*clusterProperty]) *marked[Property, *clusterProperty] {
	return &marked[Property, *clusterProperty]{
		turn: turn, table: table,
		have: func(o *clusterProperty) Property { return Property{Name: o.Name, Value: o.Spec.Value} },
		write: func(ctx context.Context, c diff.Change[Property], seen *clusterProperty) error {
			o := table.body("", c.Want.Name, uidOf(seen))
			o.SetLabels(map[string]string{managedBy: manager})
			o.Object["spec"] = map[string]any{"value": c.Want.Value}
			return table.apply(ctx, o, seen != nil)
		},
	}
}
