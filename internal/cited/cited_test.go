package cited_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cited"
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
	if diff := cmp.Diff(want, cited.Check(root, text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
