package underlayspec

import (
	"bytes"
	"flag"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"hawser.dev/hawser/internal/diag"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

func known(target string) bool { return strings.HasPrefix(target, "g") && target != "g9" }

// TestParseErrors compares the errors of wrong files with the expected ones.
func TestParseErrors(t *testing.T) {
	paths, err := filepath.Glob("testdata/wrong/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			raw := archive.Files[0].Data
			_, list := Parse("underlay.yaml", raw, known)
			var out bytes.Buffer
			if err := diag.Print(&out, list, map[string][]byte{"underlay.yaml": raw}, false); err != nil {
				t.Fatal(err)
			}
			if *update {
				archive.Files = append(archive.Files[:1], txtar.File{Name: "want", Data: out.Bytes()})
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(string(archive.Files[1].Data), out.String()); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// TestRules compares the rules of each kind of router with the expected ones.
func TestRules(t *testing.T) {
	const path = "testdata/rules.txtar"
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, list := Parse("underlay.yaml", archive.Files[0].Data, nil)
	if len(list) > 0 {
		t.Fatal(list)
	}
	inside := map[string][]netip.Addr{"g1/gw": {netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:2::1")}}
	var out strings.Builder
	for i := range f.Routers {
		out.WriteString("# " + f.Routers[i].Name + "\n" + f.Routers[i].Rules(inside))
	}
	out.WriteString("# bridges\n" + strings.Join(f.IsolationRules([]string{"i1"}), "\n") + "\n")
	if *update {
		archive.Files = append(archive.Files[:1], txtar.File{Name: "want", Data: []byte(out.String())})
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(string(archive.Files[1].Data), out.String()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// FuzzParse checks that no input makes Parse, Print or Rules panic.
func FuzzParse(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*/*.txtar") // a good pattern never fails
	for _, path := range append(paths, "testdata/rules.txtar") {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(archive.Files[0].Data)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		file, list := Parse("fuzz.yaml", raw, known)
		if err := diag.Print(io.Discard, list, map[string][]byte{"fuzz.yaml": raw}, false); err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if d.Code == "" || d.Summary == "" {
				t.Errorf("finding without code or summary: %+v", d)
			}
		}
		if list.HasErrors() {
			return
		}
		for i := range file.Routers {
			file.Routers[i].Rules(nil)
		}
		file.IsolationRules(nil)
	})
}
