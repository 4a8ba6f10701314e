package main

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the table of the document")

const repository = "../../../.."

// TestCurrent fails when the document does not have the table of the records.
func TestCurrent(t *testing.T) {
	if *update {
		if err := writeTable(repository); err != nil {
			t.Fatal(err)
		}
	}
	records, err := read(repository)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(repository, document))
	if err != nil {
		t.Fatal(err)
	}
	want, err := withTable(string(raw), table(records))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, string(raw)); d != "" {
		t.Errorf("%s is not current, run go test ./e2e/kube/cni/record -update (-want +have)\n%s", document, d)
	}
}

// TestRun tests that a run is recorded and other results stay, also for an incomplete run.
func TestRun(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{resultsDir, filepath.Dir(document)} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, document), []byte("# Networks\n<!-- begin: results -->\nold\n<!-- end: results -->\nmore\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"--network", "calico-like", "--settings", "RP_FILTER=1", "--proxy", "iptables", "--commit"}
	for _, tt := range []struct{ commit, events, want string }{
		{"a1", `{"Time":"2026-11-22T23:00:00Z","Action":"run","Test":"TestTour"}
			{"Action":"output","Test":"TestTour","Output":"hello\n"}
			{"Action":"fail","Test":"TestTour/one"}
			{"Time":"2026-11-22T23:00:01Z","Action":"fail","Test":"TestTour"}
			{"Time":"2026-11-22T23:00:01Z","Action":"skip","Test":"TestMCS"}
			{"Action":"fail"}`, "tests failed"},
		{"b2", `{"Time":"2026-11-23T01:00:00Z","Action":"run","Test":"TestTour"}
			{"Time":"2026-11-23T01:00:01Z","Action":"pass","Test":"TestTour"}
			{"Action":"pass"}`, ""},
		{"b2", `{"Time":"2026-11-23T02:00:00Z","Action":"run","Test":"TestReach"}`, "the tests did not end"},
		{"b2", `{"Action":"build-output","Output":"no such type\n"} {"Action":"fail"}`, "tests failed"},
		{"b2", `nothing was built`, "read events of tests"},
	} {
		said := ""
		if err := run(root, append(args, tt.commit), strings.NewReader(tt.events), io.Discard); err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, tt.want) || (said == "") != (tt.want == "") {
			t.Errorf("%s: %q, want %q", tt.events, said, tt.want)
		}
	}
	have, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	want := `# Networks
<!-- begin: results -->

| network | settings | Services | passed | failed | skipped | when, which commit |
|---|---|---|---|---|---|---|
| calico-like | RP_FILTER=1 | iptables | Tour | Reach | MCS | 2026-11-22 a1, 2026-11-23 b2 |

<!-- end: results -->
more
`
	if d := cmp.Diff(want, string(have)); d != "" {
		t.Errorf("-want +have\n%s", d)
	}
}
