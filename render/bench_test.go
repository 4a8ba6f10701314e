package render_test

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/render/plan"
	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/schema/lockfile"
)

// BenchmarkPipeline runs all steps from the text of the topology to the printed plan. It runs 1000
// clusters with 10000 exports, and a tenth of both. "first" has no published tree. "more" has one
// export more than the published tree, like a typical commit. In "hubs" three clusters start to
// forward transit traffic of all others. MiB is the largest resident set since the start of the
// run. Other tests of the package must not run:
//
//	go test -run '^$' -bench Pipeline -benchtime 5x ./render
func BenchmarkPipeline(b *testing.B) {
	root := rootOf(b)
	for _, clusters := range []int{1000, 100} {
		exports := 10 * clusters
		less, text := world(clusters, exports-1), world(clusters, exports)
		hubs := strings.Replace(text, "\nspec:\n", "\nspec:\n  connectivity: {mode: hub, hubs: [c0, c1, c2]}\n", 1)
		for _, run := range []struct{ name, before, after string }{{"first", "", less}, {"more", less, text}, {"hubs", text, hubs}} {
			b.Run(fmt.Sprintf("%s/%d", run.name, clusters), func(b *testing.B) {
				var lock []byte
				var published render.Tree
				if run.before != "" {
					lock, published = pipeline(b, []byte(run.before), root, nil, nil, map[string]time.Duration{})
				}
				runtime.GC()
				debug.FreeOSMemory()
				_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // resets the peak: proc_pid_clear_refs(5)
				took, runs := map[string]time.Duration{}, 0
				for b.Loop() {
					pipeline(b, []byte(run.after), root, lock, published, took)
					runs++
				}
				for step, d := range took {
					b.ReportMetric(float64(d.Milliseconds())/float64(runs), "ms-"+step)
				}
				b.ReportMetric(float64(peak(b)>>20), "MiB")
			})
		}
	}
}

// pipeline runs all steps once and adds the duration of each step to took.
func pipeline(b *testing.B, text []byte, root *keys.Root, lockRaw []byte, published render.Tree, took map[string]time.Duration) ([]byte, render.Tree) {
	begin := time.Now()
	lap := func(step string) { took[step], begin = took[step]+time.Since(begin), time.Now() }
	top, source, list := load.Topology("clusterset.yaml", text)
	noErrors(b, list)
	lap("validate")
	have, list := lockfile.Read("clusterset.lock.yaml", lockRaw)
	noErrors(b, list)
	lock, list := allocate.Allocate(top, have)
	noErrors(b, list)
	lap("allocate")
	tree, list := render.Render(render.Input{Topology: top, Lock: lock, Root: root, Previous: published})
	noErrors(b, list)
	lap("render")
	p, err := plan.Compute(tree, published)
	if err != nil {
		b.Fatal(err)
	}
	p.Locate(func(path string) string { return source.Pos(path).File })
	if err := p.Print(io.Discard, false); err != nil {
		b.Fatal(err)
	}
	lap("diff")
	raw, err := lock.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	return raw, tree
}

// peak returns the largest resident set of this process, in bytes.
func peak(b *testing.B) (bytes int) {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip(err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			if _, err := fmt.Sscan(rest, &bytes); err != nil {
				b.Fatal(err)
			}
		}
	}
	return bytes << 10
}
