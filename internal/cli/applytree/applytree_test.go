package applytree

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/clitest"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/fakeapi"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/load"
)

// TestConfirmation checks that only "y" or "yes" is consent, and that confirm asks only if there
// are changes.
func TestConfirmation(t *testing.T) {
	t.Parallel()
	changes := &apply.Plan{Changes: []apply.Change{{Op: "+"}}}
	tests := []struct {
		name, input string
		planned     []apply.Result
		agreed      bool
		asked       string
	}{
		{"yes", "y\n", []apply.Result{{Cluster: "g1", Plan: changes}}, true, "Apply this to 1 cluster? [y/N] "},
		{"yes in full", " YES \n", []apply.Result{{Cluster: "g1", Plan: changes}, {Cluster: "g2", Plan: changes}}, true, "to 2 clusters?"},
		{"no", "n\n", []apply.Result{{Cluster: "g1", Plan: changes}}, false, "? [y/N] "},
		{"return", "\n", []apply.Result{{Cluster: "g1", Plan: changes}}, false, "? [y/N] "},
		{"the end of the input", "", []apply.Result{{Cluster: "g1", Plan: changes}}, false, "? [y/N] "},
		{"something else", "yesterday\n", []apply.Result{{Cluster: "g1", Plan: changes}}, false, "? [y/N] "},
		{"a failed cluster is not counted", "y\n", []apply.Result{{Cluster: "g1", Error: "away"}, {Cluster: "g2", Plan: changes}}, true, "to 1 cluster?"},
		{"nothing to do", "", []apply.Result{{Cluster: "g1", Plan: &apply.Plan{}}}, true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			var g confirmation
			agreed := g.confirm(t.Context(), &cli.Env{In: strings.NewReader(tt.input), Err: &out}, tt.planned)
			if agreed != tt.agreed || g.refused == tt.agreed {
				t.Errorf("agreed %v, refused %v", agreed, g.refused)
			}
			if tt.asked == "" && out.Len() > 0 || !strings.Contains(out.String(), tt.asked) {
				t.Errorf("printed %q", out.String())
			}
		})
	}
}

// TestConfirmIsCancelled checks that an interrupt ends the question without consent.
func TestConfirmIsCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reader, writer := io.Pipe()
	t.Cleanup(func() { _ = writer.Close() })
	var g confirmation
	if g.confirm(ctx, &cli.Env{In: reader, Err: io.Discard}, []apply.Result{{Plan: &apply.Plan{Changes: []apply.Change{{Op: "+"}}}}}) || !g.refused {
		t.Error("an interrupt is taken for a yes")
	}
}

// TestDifferentImages checks that a dry run compares clusters that run different images with one of
// them, while an apply is refused.
func TestDifferentImages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	topology := filepath.Join(dir, "clusterset.yaml")
	if err := os.WriteFile(topology, []byte(clitest.Topology), 0o600); err != nil {
		t.Fatal(err)
	}
	var clusters []*kubeclient.Client
	for _, name := range []string{"g1", "g2"} {
		api, c := fakeapi.New(t, name)
		api.Objects["/apis/apps/v1/namespaces/hawser-system/daemonsets/hawser-gateway"] = fakeapi.Object("DaemonSet", "hawser-system", "hawser-gateway", map[string]any{
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
				"containers": []any{map[string]any{"name": "agent", "image": "example.org/agent:" + name}},
			}}},
		})
		clusters = append(clusters, c)
	}
	var out bytes.Buffer
	env := &cli.Env{Err: &out, Out: io.Discard}
	set, _, list := load.Topology(topology, []byte(clitest.Topology))
	if list.HasErrors() {
		t.Fatal(list.Err())
	}
	source := treeSource{topology: topofile.File{Path: topology, Raw: []byte(clitest.Topology), LockPath: filepath.Join(dir, "clusterset.lock.yaml")}, set: set}
	lock, list := reconciler.Allocate(reconciler.AllocateInput{Set: set})
	if list.HasErrors() {
		t.Fatal(list.Err())
	}
	var err error
	if source.topology.Lock, err = lock.Lock.Marshal(); err != nil {
		t.Fatal(err)
	}
	if _, err := source.build(t.Context(), env, clusters, TreeFlags{}, false); err == nil || !strings.Contains(err.Error(), "clusters run different images") {
		t.Errorf("apply: %v", err)
	}
	tree, err := source.build(t.Context(), env, clusters, TreeFlags{}, true)
	if err != nil {
		t.Fatal(err)
	}
	if image := render.ImageOf(tree); !strings.HasPrefix(image, "example.org/agent:g") || !strings.Contains(out.String(), "warning: compared with "+image+"\n") {
		t.Errorf("compared with %q, printed %q", image, out.String())
	}
}
