package nodeagent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/kube"
	"hawser.dev/hawser/nodeagent/kube/kubetest"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// apiInputs are the inputs of node w1 of cluster g1, whose facts come from a server.
func apiInputs(t *testing.T, server *kubetest.Server, state string) *inputs {
	t.Helper()
	raw, err := fabric.Encode(&fabric.Fabric{APIVersion: fabric.APIVersion, Name: "demo", Clusters: []fabric.Cluster{{Name: "g1"}}})
	if err != nil {
		t.Fatal(err)
	}
	packed, err := fabric.Compress(raw)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fabricFile), packed, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := newInputs(Config{
		Cluster: "g1", Node: "w1", FabricDir: dir, StateDir: state, Kube: kube.Config{Kubeconfig: server.Kubeconfig(t)},
	}, slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- in.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return in
}

func awaitInputs(t *testing.T, in *inputs, what string, good func(current, bool, status.InputState) bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		now, ok := in.now()
		var facts status.InputState
		for _, s := range in.states() {
			if s.Name == "facts" {
				facts = s
			}
		}
		if good(now, ok, facts) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited for %s, have %t, %+v, %+v", what, ok, facts, now.facts)
		}
	}
}

// TestStartWithoutTheAPI comes up from the state folder while the API server is
// away, and not at all where there is nothing in it.
func TestStartWithoutTheAPI(t *testing.T) {
	t.Parallel()
	server, state := kubetest.New(t), t.TempDir()
	server.Put(t, "apiVersion: v1\nkind: Node\nmetadata: {name: w1}\nstatus: {addresses: [{type: InternalIP, address: 203.0.113.2}]}")
	has := func(want string) func(current, bool, status.InputState) bool {
		return func(c current, ok bool, _ status.InputState) bool {
			return ok && len(c.facts.Facts.Nodes) == 1 && c.facts.Facts.Nodes[0].Addrs[0].String() == want
		}
	}
	awaitInputs(t, apiInputs(t, server, state), "facts of the API", func(c current, ok bool, s status.InputState) bool {
		_, err := os.Stat(filepath.Join(state, factsFile))
		return has("203.0.113.2")(c, ok, s) && s.OK && s.From == "kubernetes API" && s.Since == nil && err == nil
	})
	server.Away(true)
	away := func(s status.InputState) bool { return !s.OK && s.From == "last good copy" && s.Since != nil }
	again := apiInputs(t, server, state)
	awaitInputs(t, again, "facts of the state folder", func(c current, ok bool, s status.InputState) bool {
		return has("203.0.113.2")(c, ok, s) && away(s) && strings.Contains(s.Error, "kubernetes API at http://127.0.0.1")
	})
	awaitInputs(t, apiInputs(t, server, t.TempDir()), "word that there is nothing", func(_ current, ok bool, s status.InputState) bool {
		return !ok && away(s)
	})
	server.Put(t, "apiVersion: v1\nkind: Node\nmetadata: {name: w1}\nstatus: {addresses: [{type: InternalIP, address: 203.0.113.9}]}")
	server.Away(false)
	awaitInputs(t, again, "the API again", has("203.0.113.9"))
}

func TestConfigOfTheAPI(t *testing.T) {
	t.Parallel()
	whole := Config{Cluster: "g1", Node: "n", FabricDir: "f", StateDir: "s", Socket: "x"}
	tests := []struct {
		name   string
		kube   kube.Config
		folder string
		want   string
	}{
		{"folder", kube.Config{}, "facts", ""},
		{"neither", kube.Config{}, "", "--facts is required: see hawser-agent run --help"},
		{"in a pod", kube.Config{InCluster: true}, "", ""},
		{"kubeconfig", kube.Config{Kubeconfig: "k", Context: "c"}, "", ""},
		{"both", kube.Config{InCluster: true, Kubeconfig: "k"}, "", "--kubernetes and --kubeconfig: use one of them, the first inside a pod"},
		{"context alone", kube.Config{Context: "c"}, "facts", "--context needs --kubeconfig"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			config := whole
			config.Kube, config.FactsDir = tt.kube, tt.folder
			have := ""
			if err := config.Validate(); err != nil {
				have = err.Error()
			}
			if have != tt.want {
				t.Errorf("want %q, have %q", tt.want, have)
			}
		})
	}
}
