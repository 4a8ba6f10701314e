package projection_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "update the golden files in testdata")

// TestGolden compares the state of every node of each clusterset in testdata with its golden file.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			w, archive := readWorld(t, file)
			var have []txtar.File
			for _, name := range w.names {
				out := text(w.states[name])
				for _, p := range w.faults[name] {
					out += fmt.Sprintf("problem %s %s: %s\n", p.Code, p.Path, p.Text)
				}
				have = append(have, txtar.File{Name: name + ".state", Data: []byte(out)})
			}
			isState := func(f txtar.File) bool { return strings.HasSuffix(f.Name, ".state") }
			if *update {
				archive.Files = append(slices.DeleteFunc(archive.Files, isState), have...)
				writeFile(t, file, txtar.Format(archive))
				return
			}
			var want []txtar.File
			for _, f := range archive.Files {
				if isState(f) {
					want = append(want, f)
				}
			}
			if len(want) != len(have) {
				t.Fatalf("golden holds %d nodes, want %d", len(want), len(have))
			}
			for i := range have {
				if diff := cmp.Diff(string(want[i].Data), string(have[i].Data)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", have[i].Name, diff)
				}
			}
		})
	}
}
