package load

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

// example returns docs/clusterset.full.yaml, which has every setting.
func example(tb testing.TB) []byte {
	tb.Helper()
	raw, err := os.ReadFile("../../docs/clusterset.full.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// TestLoadWrong compares the findings of invalid files with the goldens. A section "name.yaml" is
// the input, and "name.out" its output.
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

// printed returns the output for a file. Every finding must have a position and a code.
func printed(t *testing.T, raw []byte) string {
	t.Helper()
	_, src, list := Topology("clusterset.yaml", raw)
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
	first, err := os.ReadFile("../../clusterset.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string][]byte{"clusterset.example.yaml": first, "docs/clusterset.full.yaml": example(t)} {
		if got := printed(t, raw); got != "" {
			t.Errorf("%s: want no findings, got\n%s", name, got)
		}
	}
	if lines := bytes.Count(first, []byte("\n")); lines > 30 {
		t.Errorf("the first example of users has %d lines: move optional settings to docs/clusterset.full.yaml", lines)
	}
}

// TestLoadEncoding checks texts that would make a golden file binary.
func TestLoadEncoding(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give, want string
	}{
		{"NUL", "kind: a\x00b\n", "clusterset.yaml:1:8: error: byte 0x00 is not allowed in a YAML text"},
		{"not UTF-8", "a: b\n\u00e9: \xff\n", "clusterset.yaml:2:4: error: byte 0xff is not allowed in a YAML text"},
		{"UTF-16", "\xff\xfek\x00", "clusterset.yaml:1:1: error: byte 0xff is not allowed in a YAML text"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, _, _ := strings.Cut(printed(t, []byte(tt.give)), "\n")
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// TestLoadWindowsLines checks that positions are correct with CR LF.
func TestLoadWindowsLines(t *testing.T) {
	t.Parallel()
	raw := bytes.ReplaceAll(example(t), []byte("\n"), []byte("\r\n"))
	if got := printed(t, raw); got != "" {
		t.Errorf("want no findings, got\n%s", got)
	}
	raw = bytes.Replace(raw, []byte("10.7.0.0/16"), []byte("10.7.0.1/16"), 1)
	if got := printed(t, raw); strings.Contains(got, "\r") || !strings.Contains(got, "podCIDRs: [10.7.0.1/16]\n") {
		t.Errorf("wrong snippet:\n%s", got)
	}
}
