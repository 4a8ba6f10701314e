package load

import (
	"bytes"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/ownership"
)

// equalSets are options to compare topologies. An empty list equals a missing list.
var equalSets = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

// archives returns the test files with topologies.
func archives(tb testing.TB) []string {
	tb.Helper()
	var out []string
	for _, pattern := range []string{"testdata/*/*.txtar", "../allocate/testdata/*/*.txtar"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			tb.Fatalf("no files %s: %v", pattern, err)
		}
		out = append(out, files...)
	}
	return out
}

// FuzzLoad checks that no input makes Topology or Print panic, and that every finding has a code.
// An accepted topology survives a round trip, also for ownership.
func FuzzLoad(f *testing.F) {
	f.Add(example(f))
	for _, file := range archives(f) {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, section := range archive.Files {
			if strings.HasSuffix(section.Name, ".yaml") {
				f.Add(section.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		set, src, list := Topology("fuzz.yaml", raw)
		if err := diag.Print(io.Discard, list, map[string][]byte{"fuzz.yaml": raw}, true); err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if d.Code == "" || d.Summary == "" {
				t.Errorf("finding without code or summary: %+v", d)
			}
		}
		src.Pos("clusters[g1].podCIDRs[0]")
		if !list.HasErrors() {
			checkRoundTrip(t, set)
		}
	})
}

func checkRoundTrip(t *testing.T, set *schema.ClusterSet) {
	t.Helper()
	raw, err := yaml.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	again, src, list := Topology("again.yaml", raw)
	if list.HasErrors() {
		var out bytes.Buffer
		if err := diag.Print(&out, list, map[string][]byte{src.File: raw}, false); err != nil {
			t.Fatal(err)
		}
		t.Fatalf("an accepted file is refused after it was written out:\n%s", out.String())
	}
	if d := cmp.Diff(set, again, equalSets); d != "" {
		t.Errorf("written out and read again (-want +got)\n%s", d)
	}
	if found, err := ownership.Diff(ownership.Version{Set: set, Source: src}, ownership.Version{Set: again, Source: src}); err != nil || len(found) > 0 {
		t.Errorf("written out it means something else: %+v, %v", found, err)
	}
}
