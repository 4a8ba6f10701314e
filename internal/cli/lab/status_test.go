//go:build linux

package lab

import (
	"slices"
	"testing"

	"hawser.dev/hawser/internal/diag"
)

// TestReconcilerLines checks that the error of a refused commit is printed once.
func TestReconcilerLines(t *testing.T) {
	t.Parallel()
	d := diag.Diagnostic{Severity: diag.Error, Code: "bad-prefix", Summary: "10.7.0.1/16 is no prefix"}
	for _, tt := range []struct {
		name, failure string
		list          diag.List
		want          []string
	}{
		{"refused", d.Error(), diag.List{d}, []string{d.Error()}},
		{"refused for two reasons", d.Error() + " (and 1 more)", diag.List{d}, []string{d.Error()}},
		{"no answer of git", "fetch: no route to host", nil, []string{"fetch: no route to host"}},
		{"other failure", "push: refused", diag.List{d}, []string{"push: refused", d.Error()}},
		{"fine", "", nil, nil},
	} {
		if got := reconcilerLines(tt.failure, tt.list); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
