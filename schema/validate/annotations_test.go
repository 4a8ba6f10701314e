package validate

import (
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
)

func TestAnnotationsBounded(t *testing.T) {
	t.Parallel()
	top := &schema.ClusterSet{Spec: schema.Spec{Exports: []schema.Export{{Annotations: map[string]string{"note": strings.Repeat("x", maxAnnotations)}}}}}
	want := "the annotations have 16388 bytes, 16384 are allowed"
	if list := Topology(top); !slices.ContainsFunc(list, func(d diag.Diagnostic) bool { return d.Summary == want }) {
		t.Errorf("have %v, want %s", list, want)
	}
}
