//go:build kube

package gitops

import (
	"slices"
	"testing"
	"time"
)

// step is a part of a test that stands on those before it.
type step struct {
	name string
	run  func(*testing.T)
}

// walk goes through steps until one fails; tell, if there is any, says why then.
func (r *rig) walk(t *testing.T, steps []step, tell func(testing.TB)) {
	for _, s := range steps {
		if t.Run(s.name, func(t *testing.T) {
			begun := time.Now()
			s.run(t)
			t.Logf("figure: %.0f s", time.Since(begun).Seconds())
		}) {
			continue
		}
		if tell != nil {
			tell(t)
		}
		t.FailNow() // here, so that what programs said is shown
	}
}

// prepare makes what a tool needs before it starts: its namespace and definitions, and
// a namespace for exports.
func (r *rig) prepare(t *testing.T, tool, namespace string) {
	t.Helper()
	r.K(t, "create", "namespace", namespace)
	r.K(t, "create", "namespace", "shop")
	for _, file := range Definitions(t, tool) {
		r.K(t, "apply", "--server-side", "-f", file)
	}
	r.Defined(t)
}

// names are those of the objects of a kind that are there.
func (r *rig) names(t testing.TB, kind string) []string {
	t.Helper()
	var out []string
	for _, o := range r.list(t, kind) {
		out = append(out, o.GetName())
	}
	slices.Sort(out)
	return out
}
