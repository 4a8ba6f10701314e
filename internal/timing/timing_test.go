package timing_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/timing"
)

var update = flag.Bool("update", false, "write docs/timing.md anew")

const begin, end = "<!-- begin: constants -->\n\n", "\n<!-- end: constants -->\n"

func TestCurrent(t *testing.T) {
	all, err := timing.Read("../..", "cmd", "internal", "nodeagent", "reconciler", "render", "schema")
	if err != nil {
		t.Fatal(err)
	}
	const file = "../../docs/timing.md"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(raw), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has not both of %q and %q", file, begin, end)
	}
	want := head + begin + timing.List(all) + end + tail
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(raw), want); diff != "" {
		t.Errorf("%s is not what the source says: go test ./internal/timing -update\n%s", file, diff)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, source string
		want         []timing.Constant
		err          string
	}{
		{"its own comments", "// a waits\n// for b.\nconst a = 2 * time.Second\n\nconst (\n\tb = time.Minute // c | d\n\tn = 3 // a count\n)\n",
			[]timing.Constant{{"p", "a", 2 * time.Second, "a waits for b."}, {"p", "b", time.Minute, "c | d"}}, ""},
		{"a comment for two", "const (\n\t// first and most\n\tfirst = time.Second\n\tmost = 3 * first\n)\n",
			[]timing.Constant{{"p", "first", time.Second, "first and most"}, {"p", "most", 3 * time.Second, "first and most"}}, ""},
		{"that of the group", "// All of it.\nconst (\n\ta = time.Hour\n\n\tb = 10 * time.Millisecond\n)\n",
			[]timing.Constant{{"p", "a", time.Hour, "All of it."}, {"p", "b", 10 * time.Millisecond, "All of it."}}, ""},
		{"a count made of durations", "const turns = int(time.Second / time.Millisecond)\n", nil, ""},
		{"no comment", "const a = time.Second\n", nil, "p.go:5:7: a has no comment: say what it waits for"},
		{"a value by a function", "// a.\nconst a = time.Second << 2\n", nil, "p.go:6:7: the value of a is too hard to read: write it as a number of units"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			if err := os.Mkdir(filepath.Join(root, "p"), 0o755); err != nil {
				t.Fatal(err)
			}
			source := "package p\n\nimport \"time\"\n\n" + tt.source
			if err := os.WriteFile(filepath.Join(root, "p", "p.go"), []byte(source), 0o644); err != nil {
				t.Fatal(err)
			}
			got, err := timing.Read(root, "p")
			if text := errorText(err, root); !strings.HasSuffix(text, tt.err) || text == "" != (tt.err == "") {
				t.Fatalf("error %q, want %q", text, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func errorText(err error, root string) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), root, "")
}

func TestList(t *testing.T) {
	t.Parallel()
	got := timing.List([]timing.Constant{{"p", "a", 90 * time.Minute, "x | y"}, {"q", "b", 250 * time.Millisecond, "b is z"}, {"q", "c", 2 * time.Hour, "z"}})
	want := "### p\n\n- `a` (1h30m): x | y\n\n### q\n\n- `b` (250ms): z\n- `c` (2h): z\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
