package load

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/ownership"
)

// shapes returns functions that return topologies with n equal elements. Most of the elements are
// invalid.
func shapes() map[string]func(n int) string {
	const recipient = "age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n"
	times := func(n int, format string) string {
		var out strings.Builder
		for i := range n {
			out.WriteString(strings.NewReplacer("%d", strconv.Itoa(i), "%a", fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)).Replace(format))
		}
		return out.String()
	}
	cluster := func(name, rest string) string {
		return "  - {name: " + name + ", serviceCIDRs: [11.0.0.0/24], podCIDRs: [10.0.0.0/8], recipient: " + recipient + ", gateways: [{name: a, node: w, endpoints: [203.0.113.1]}]" + rest + "}\n"
	}
	two := "  clusters:\n" + cluster("a", "") + cluster("b", "")
	export := func(rest string) string {
		return two + "  exports:\n  - {name: e, namespace: x, clusters: [a], ports: [{port: 80}], " + rest + "}\n"
	}
	one := func(n int, before, format, after string) string {
		return "  clusters:\n  - name: a\n    recipient: " + recipient + "\n" + before + times(n, format) + after
	}
	specs := map[string]func(n int) string{
		"prefixes":               func(n int) string { return one(n, "    podCIDRs:\n", "    - %a/32\n", "") },
		"prefixes on one line":   func(n int) string { return one(n, "    podCIDRs: [", "%a/32, ", "]\n") },
		"one prefix often":       func(n int) string { return one(n, "    podCIDRs:\n", "    - 10.0.0.0/24\n", "") },
		"one prefix on one line": func(n int) string { return one(n, "    podCIDRs: [", "10.0.0.0/24, ", "]\n") },
		"one never, often": func(n int) string {
			return one(n, "    globalnet: never\n    podCIDRs: [", "10.0.0.0/24, ", "]\n") + cluster("b", "")
		},
		"prefixes in each other": func(n int) string { return one(n, "    podCIDRs:\n    - 10.0.0.0/8\n", "    - %a/32\n", "") },
		"host bits":              func(n int) string { return one(n, "    podCIDRs:\n", "    - %a/0\n", "") },
		"no prefixes":            func(n int) string { return one(n, "    podCIDRs:\n", "    - %a-%d\n", "") },
		"prefixes in all clusters'": func(n int) string {
			return one(n/2, "    podCIDRs:\n", "    - %a/32\n", "") + times(n/16, cluster("c%d", ""))
		},
		"the same in never": func(n int) string {
			return one(n/2, "    podCIDRs:\n", "    - %a/32\n", "") + times(n/16, cluster("c%d", ", globalnet: never"))
		},
		"clusters": func(n int) string { return "  clusters:\n" + times(n, cluster("c%d", "")) },
		"warnings": func(n int) string {
			return "  clusters:\n" + times(n, strings.Replace(cluster("c%d", ""), "203.0.113.1", "dns:g%d.example", 1))
		},
		"one cluster often":    func(n int) string { return "  clusters:\n" + times(n, cluster("a", "")) },
		"nothing for clusters": func(n int) string { return "  clusters: [" + times(n, "~, ") + "]\n" },
		"empty clusters":       func(n int) string { return "  clusters: [" + times(n, "{}, ") + "]\n" },
		"names":                func(n int) string { return "  clusters:\n" + times(n, cluster("c%d"+strings.Repeat("x", 200), "")) },
		"gateways": func(n int) string {
			return one(n, "    gateways:\n", "    - {name: g%d, node: n%d, endpoints: [203.0.113.1]}\n", "")
		},
		"endpoints": func(n int) string {
			return one(n, "    gateways:\n    - name: g\n      node: w\n      endpoints:\n", "      - 203.0.113.1:%d\n", "")
		},
		"exports": func(n int) string {
			return two + "  exports:\n" + times(n, "  - {name: e%d, namespace: x, clusters: [a, b], ports: [{port: 80}]}\n")
		},
		"exports of unknown clusters": func(n int) string {
			return "  clusters:\n" + times(n, cluster("cluster%d", "")) + "  exports:\n" + times(n, "  - {name: e%d, namespace: x, clusters: [clutter%d], ports: [{port: 80}]}\n")
		},
		"clusters of an export": func(n int) string { return export("allow: {clusters: [" + times(n, "a, ") + "]}") },
		"weights": func(n int) string {
			return export("balance: {policy: weighted, weights: {" + times(n, "x%d: 1, ") + "}}")
		},
		"order":  func(n int) string { return export("balance: {policy: failover, order: [" + times(n, "x%d, ") + "]}") },
		"labels": func(n int) string { return export("labels: {" + times(n, "-%d: y, ") + "}") },
		"hubs":   func(n int) string { return "  connectivity: {mode: hub, hubs: [" + times(n, "k%d, ") + "]}\n" + two },
		"links": func(n int) string {
			return "  connectivity:\n    mode: links\n    links:\n" + times(n, "    - [c%d, c0]\n") + "  clusters:\n" + times(n, cluster("c%d", ""))
		},
		"links of unknown clusters": func(n int) string { return "  links:\n" + times(n, "  - {between: [x%d, y%d], port: 1}\n") + two },
		"domains":                   func(n int) string { return "  extraDomains: [" + times(n, "a.b, ") + "]\n" + two },
		"epochs":                    func(n int) string { return "  keys: {epochs: [" + times(n, "%d, ") + "]}\n" + two },
		"proposals":                 func(n int) string { return "  tunnel: {ipsec: {proposals: [" + times(n, "aes, ") + "]}}\n" + two },
		"unknown keys":              func(n int) string { return two + times(n, "  clu%d: 1\n") },
		"keys on one line":          func(n int) string { return "  tunnel: {" + times(n, "k%d: 1, ") + "}\n" + two },
		"a long line":               func(n int) string { return "  tunnel: {" + times(n, "ü%d: 1, ") + "}\n" + two },
		"aliases":                   func(n int) string { return "  a: &a [x,x,x,x,x,x,x,x,x]\n" + times(n, "  k%d: [*a, *a, *a]\n") },
		"aliases of aliases": func(n int) string {
			out := "  a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
			for i := 1; i < n; i++ {
				out += fmt.Sprintf("  a%d: &a%d [*a%d,*a%d,*a%d,*a%d]\n", i, i, i-1, i-1, i-1, i-1)
			}
			return out
		},
		"lists in lists": func(n int) string { return "  domain: " + strings.Repeat("[", n) + strings.Repeat("]", n) + "\n" },
		"maps in maps":   func(n int) string { return "  domain: " + strings.Repeat("{a: ", n) + strings.Repeat("}", n) + "\n" },
	}
	for name, spec := range specs {
		specs[name] = func(n int) string {
			return "apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata: {name: large}\nspec:\n" + spec(n)
		}
	}
	return specs
}

// sized returns a shape of about the given number of bytes.
func sized(shape func(int) string, bytes int) []byte {
	n := 64
	for len(shape(2*n)) < bytes && n < bytes {
		n *= 2
	}
	return []byte(shape(n * bytes / max(len(shape(n)), 1)))
}

func loadAndPrint(tb testing.TB, raw []byte) diag.List {
	tb.Helper()
	_, _, list := Topology("x.yaml", raw)
	if err := diag.Print(io.Discard, list, map[string][]byte{"x.yaml": raw}, false); err != nil {
		tb.Fatal(err)
	}
	return list
}

// TestGrowth checks that twice the file needs at most about twice the work, measured as allocated
// bytes. The test is not parallel, because it would count allocations of other tests.
func TestGrowth(t *testing.T) {
	work := func(raw []byte) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if list := loadAndPrint(t, raw); len(list) > 5*diag.MaxFindings {
			t.Errorf("%d findings", len(list))
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	for name, shape := range shapes() {
		half, whole := sized(shape, 30_000), sized(shape, 60_000)
		growth := float64(len(whole)) / float64(len(half))
		if a, b := work(half), work(whole); b > 1.4*growth*a+1e6 {
			t.Errorf("%s: %d bytes take %.1f MB, %d take %.1f MB", name, len(half), a/1e6, len(whole), b/1e6)
		}
	}
}

// BenchmarkMegabyte loads a file of 1 MB in each shape. The slowest one can take seconds.
func BenchmarkMegabyte(b *testing.B) {
	for name, shape := range shapes() {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			raw := sized(shape, 1<<20)
			b.ReportAllocs()
			for b.Loop() {
				loadAndPrint(b, raw)
			}
		})
	}
}

// TestTooManyFindings checks that one finding reports the omitted ones, with their worst severity.
func TestTooManyFindings(t *testing.T) {
	t.Parallel()
	list := loadAndPrint(t, sized(shapes()["one prefix often"], 60_000))
	told := 0
	for _, d := range list {
		if d.Code == "too-many-findings" && d.Severity == diag.Error && strings.HasSuffix(d.Summary, " more errors are not shown") {
			told++
		}
	}
	if told != 1 || len(list) > diag.MaxFindings+1 {
		t.Errorf("reported %d times among %d findings", told, len(list))
	}
	// No number of warnings hides an error.
	list = loadAndPrint(t, append(sized(shapes()["warnings"], 60_000), "  domain: wrong_\n"...))
	if !slices.ContainsFunc(list, func(d diag.Diagnostic) bool { return d.Path == "domain" }) ||
		!slices.ContainsFunc(list, func(d diag.Diagnostic) bool { return d.Severity == diag.Warning && d.Code == "too-many-findings" }) {
		t.Errorf("%d findings, and the error is not among them", len(list))
	}
	raw := sized(shapes()["empty clusters"], 60_000)
	if list = loadAndPrint(t, raw); len(list) != 1 || list[0].Code != "too-many" {
		t.Errorf("findings %v", list[:min(len(list), 3)])
	}
}

// TestGrowthOfDifferences checks that ownership.Diff of twice the file needs at most about twice
// the work. The test is not parallel, because it would count allocations of other tests.
func TestGrowthOfDifferences(t *testing.T) {
	versionOf := func(raw []byte) ownership.Version {
		set, src, list := Decode("clusterset.yaml", raw)
		if list.HasErrors() {
			t.Fatal(list)
		}
		return ownership.Version{Set: set, Source: src}
	}
	base := versionOf(example(t))
	work := func(v ownership.Version) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := ownership.Diff(base, v); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	for _, name := range []string{"clusters", "gateways", "endpoints", "exports", "prefixes", "clusters of an export"} {
		shape := shapes()[name]
		half, whole := sized(shape, 100_000), sized(shape, 200_000)
		growth := float64(len(whole)) / float64(len(half))
		if a, b := work(versionOf(half)), work(versionOf(whole)); b > 1.4*growth*a+1e6 {
			t.Errorf("%s: %d bytes take %.1f MB, %d take %.1f MB", name, len(half), a/1e6, len(whole), b/1e6)
		}
	}
}
