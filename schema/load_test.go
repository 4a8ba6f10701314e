package schema

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"hawser.dev/hawser/internal/diag"
)

var update = flag.Bool("update", false, "rewrite goldens and generated files")

// example is the file that users begin with.
func example(tb testing.TB) []byte {
	tb.Helper()
	raw, err := os.ReadFile("../clusterset.example.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// TestLoadWrong compares what is printed for wrong files with the goldens. A
// section "name.yaml" is the input, "name.out" beside it what must be printed.
func TestLoadWrong(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/wrong/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			wrong(t, file)
		})
	}
}

func wrong(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, f := range archive.Files {
		if name, ok := strings.CutSuffix(f.Name, ".out"); ok {
			have[name] = string(f.Data)
		}
	}
	out := &txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		name, ok := strings.CutSuffix(f.Name, ".yaml")
		if !ok {
			continue
		}
		got := printed(t, f.Data)
		if got == "" {
			t.Errorf("%s: nothing was found", name)
		}
		if d := cmp.Diff(have[name], got); d != "" && !*update {
			t.Errorf("%s (-want +got)\n%s", name, d)
		}
		out.Files = append(out.Files, f, txtar.File{Name: name + ".out", Data: []byte(got)})
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// printed gives what a user sees for a file. Every finding must have a place and a code.
func printed(t *testing.T, raw []byte) string {
	t.Helper()
	_, src, list := Load("clusterset.yaml", raw)
	for _, d := range list {
		if d.Code == "" || d.Pos.File == "" || (!d.Pos.IsValid() && d.Code != "empty-file" && d.Code != "yaml-syntax") {
			t.Errorf("finding without code or place: %+v", d)
		}
	}
	var out bytes.Buffer
	if err := diag.Print(&out, list, map[string][]byte{src.File: raw}, false); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestExampleLoads(t *testing.T) {
	t.Parallel()
	if got := printed(t, example(t)); got != "" {
		t.Errorf("want no findings, got\n%s", got)
	}
}
