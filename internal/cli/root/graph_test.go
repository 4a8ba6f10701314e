package root

import (
	"bytes"
	"flag"
	"io"
	"os"
	"testing"

	"hawser.dev/hawser/internal/cli"
)

var update = flag.Bool("update", false, "rewrite docs/map.svg and docs/commands.md")

// TestMapOfTheReadme checks that the README's map is the output of hawser graph for the topology
// next to it.
func TestMapOfTheReadme(t *testing.T) {
	t.Parallel()
	const file = "../../../docs/map.svg"
	var out bytes.Buffer
	env := &cli.Env{Out: &out, Err: io.Discard, Color: "never"}
	root := newRoot(env)
	root.SetArgs([]string{"graph", "../../../docs/clusterset.full.yaml"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, out.Bytes()) {
		t.Errorf("%s is not what hawser graph docs/clusterset.full.yaml draws: make generate", file)
	}
}
