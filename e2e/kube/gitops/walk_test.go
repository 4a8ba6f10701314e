//go:build kube

package gitops

import (
	"slices"
	"testing"
	"time"
)

// step is a part of a test. It depends on the previous steps.
type step struct {
	name string
	run  func(*testing.T)
}

// runSteps runs steps until one fails. It then calls logState, which may be nil.
func (r *testCluster) runSteps(t *testing.T, steps []step, logState func(testing.TB)) {
	for _, s := range steps {
		if t.Run(s.name, func(t *testing.T) {
			begun := time.Now()
			s.run(t)
			t.Logf("figure: %.0f s", time.Since(begun).Seconds())
		}) {
			continue
		}
		if logState != nil {
			logState(t)
		}
		t.FailNow() // each step depends on the previous one
	}
}

// prepare creates a tool's namespace and definitions, and a namespace for exports.
func (r *testCluster) prepare(t *testing.T, tool, namespace string) {
	t.Helper()
	r.K(t, "create", "namespace", namespace)
	r.K(t, "create", "namespace", "shop")
	for _, file := range Definitions(t, tool) {
		r.K(t, "apply", "--server-side", "-f", file)
	}
	r.Defined(t)
}

// names returns the names of all objects of a kind.
func (r *testCluster) names(t testing.TB, kind string) []string {
	t.Helper()
	var out []string
	for _, o := range r.list(t, kind) {
		out = append(out, o.GetName())
	}
	slices.Sort(out)
	return out
}
