package load

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/schema"
)

// TestLoadRight compares valid files with the goldens. A section "name.yaml" is the input.
// "name.out" is the topology with all defaults.
func TestLoadRight(t *testing.T) {
	t.Parallel()
	const file = "testdata/right/all.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, f := range archive.Files {
		if name, ok := strings.CutSuffix(f.Name, ".out"); ok {
			want[name] = string(f.Data)
		}
	}
	out := &txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		name, ok := strings.CutSuffix(f.Name, ".yaml")
		if !ok {
			continue
		}
		set, _, list := Topology(filepath.Base(file), f.Data)
		if len(list) > 0 {
			t.Errorf("%s: %v", name, list)
		}
		got, err := yaml.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want[name], string(got)); d != "" && !*update {
			t.Errorf("%s (-want +got)\n%s", name, d)
		}
		checkRoundTrip(t, set)
		out.Files = append(out.Files, f, txtar.File{Name: name + ".out", Data: got})
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDefaultTwice(t *testing.T) {
	t.Parallel()
	set, _, _ := Topology("x.yaml", example(t))
	again, _, _ := Topology("x.yaml", example(t))
	schema.Default(again)
	if d := cmp.Diff(set, again, equalSets); d != "" {
		t.Errorf("(-once +twice)\n%s", d)
	}
}
