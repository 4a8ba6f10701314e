package doccheck_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/doccheck"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "tool"}
	root.PersistentFlags().String("color", "", "")
	show := &cobra.Command{Use: "show", Run: run}
	show.Flags().StringP("output", "o", "", "")
	keys := &cobra.Command{Use: "keys"}
	keys.AddCommand(&cobra.Command{Use: "root FILE", Run: run})
	root.AddCommand(show, keys)

	text := strings.Join([]string{
		"Say `tool show -o json --color never`, or `tool COMMAND --help`, not `tool see`.",
		"",
		"    $ A=b bin/tool show --output json --nothing   # --not-this",
		"    tool keys root FILE -- --not-this | tool show --not-this",
		"    tool keys forget",
		"    tool completion bash",
		"    tool show -x",
		"    toolbox gone; other tool gone",
	}, "\n")
	want := []string{
		"1: tool see: there is no command see",
		"3: tool show --output json --nothing: there is no flag --nothing",
		"5: tool keys forget: there is no command forget",
		"7: tool show -x: there is no flag -x",
	}
	if diff := cmp.Diff(want, doccheck.CheckCommands(root, text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAttacks checks that each promise of docs/security.md and each attack of docs/threats.md
// names tests that exist.
func TestAttacks(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"docs/security.md", "docs/threats.md"} {
		wrong, err := doccheck.CheckTests("../..", page)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wrong {
			t.Error(w)
		}
	}
}

func TestCheckTests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"page.md":   "`TestThere`: yes.\n\n- nothing\n- as `TestThere`\n  and `TestLost`\n- `FuzzLost`\n\n| a | test |\n|---|---|\n| x | `TestThere`, `script` |\n| y | `TestGone` (pkg) |\n| z | none |\n\n| other |\n|---|\n| `TestElse` |\n\n## Known limits\n\n- one\n\n## More\n\nwords\n\n- who may do all. Tests: none.\n",
		"none.md":   "words\n",
		"a_test.go": "package a\n\nfunc TestThere(t *testing.T) {}\n", "script.txtar": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := doccheck.CheckTests(dir, "page.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := doccheck.CheckTests(dir, "none.md"); err == nil {
		t.Error("a page without a test is accepted")
	}
	want := []string{
		"page.md:3: this names no test", "page.md:4: there is no test TestLost", "page.md:6: there is no test FuzzLost",
		"page.md:11: there is no test TestGone", "page.md:12: the row names no test", "page.md:24: this names no test",
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
