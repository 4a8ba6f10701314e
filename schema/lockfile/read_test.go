package lockfile_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/yamlsize"
	"hawser.dev/hawser/schema/lockfile"
)

// TestBombs checks that Read rejects a small lock that expands to a large one, with the correct
// line and little memory. The test is not parallel, because it would count allocations of other
// tests.
func TestBombs(t *testing.T) {
	laughs := "allocated:\n  clusters[c].blocks: &a0 [242.0.0.0/16]\n"
	for i := range 40 {
		laughs += fmt.Sprintf("  clusters[c%d].blocks: &a%d [*a%d, *a%[3]d, *a%[3]d]\n", i, i+1, i)
	}
	var ranges strings.Builder
	ranges.WriteString("allocated:\n")
	for i := range 20_000 {
		fmt.Fprintf(&ranges, "  exports[n/s%d].vips: [fd00::1-fd00::fff]\n", i)
	}
	for _, test := range []struct{ name, text, want string }{
		{"aliases of aliases", laughs, "lock:3:29: error: the lock has \"a0\" instead of a prefix without host bits"},
		{"an alias of itself", "allocated: &a\n  clusters[c].blocks: *a\n", "lock:2:23: error: the lock needs a list here"},
		{"an alias for an ordinal", "x: &5 5\nallocated:\n  clusters[c].gateways[g].ordinal: *5\n", "lock:1:1: error: the lock has the unknown key"},
		{"ranges", ranges.String(), "lock:259:25: error: the lock has more than 1048576 addresses in total"},
		{"values", "allocated: {a: [" + strings.Repeat("a,", yamlsize.MaxValues) + "]}\n", "lock:1:2000010: error: the lock has more than 1000000 YAML values in one file"},
		{"wrong values", "allocated:\n  clusters[c].blocks: [" + strings.Repeat("a,", 100_000) + "]\n", "lock:2:24: error: the lock has \"a\" instead of a prefix"},
		{"a long value", "allocated:\n  clusters[c].blocks: [" + strings.Repeat("s", 100_000) + "]\n", "lock:2:24: error: the lock has \"ssss"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, list := lockfile.Read("lock", []byte(test.text))
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 200<<20 {
			t.Errorf("%s: Read allocates %d MiB", test.name, n>>20)
		}
		if len(list) == 0 || len(list) > diag.MaxFindings+1 {
			t.Errorf("%s: %d findings", test.name, len(list))
			continue
		}
		if text := list[0].Error(); !strings.HasPrefix(text, test.want) || len(text) > 300 {
			t.Errorf("%s: %.300s, want %s", test.name, text, test.want)
		}
	}
}
