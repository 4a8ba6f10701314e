package render_test

import (
	"runtime"
	"testing"
	"time"

	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/plan"
	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/schema/lockfile"
)

// BenchmarkPipeline takes 1000 clusters and 10000 exports from the text of the
// topology to the plan against what is published; "first" has nothing yet.
func BenchmarkPipeline(b *testing.B) {
	text := []byte(world(1000, 10000))
	root := rootOf(b)
	var lockRaw []byte
	var published render.Tree
	pass := func(b *testing.B) {
		top, _, list := load.Topology("clusterset.yaml", text)
		noErrors(b, list)
		loaded := time.Now()
		have, list := lockfile.Read("clusterset.lock.yaml", lockRaw)
		noErrors(b, list)
		lock, list := allocate.Addresses(top, have)
		noErrors(b, list)
		tree, list := render.Render(render.Input{Topology: top, Lock: lock, Root: root, Previous: published})
		noErrors(b, list)
		if _, err := plan.Compute(tree, published); err != nil {
			b.Fatal(err)
		}
		raw, err := lock.Marshal()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(loaded).Seconds(), "s-after-load")
		lockRaw, published = raw, tree
	}
	measured := func(b *testing.B) {
		for b.Loop() {
			pass(b)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.Sys)/1e6, "MB-of-process")
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			lockRaw, published = nil, nil
			pass(b)
		}
	})
	b.Run("again", measured)
}
