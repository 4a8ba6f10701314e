package input

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/cluster/kube"
	"hawser.dev/hawser/nodeagent/cluster/kube/kubetest"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// apiInputs returns the inputs of node w1 of cluster g1, whose facts come from a server.
func apiInputs(t *testing.T, server *kubetest.Server, state string) *Inputs {
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
	in, err := Open(Config{
		Cluster: "g1", Node: "w1", FabricDir: dir, StateDir: state, Kube: kube.Config{Kubeconfig: server.Kubeconfig(t)},
		Log: slog.New(slog.DiscardHandler), Changed: func() {},
	})
	if err != nil {
		t.Fatal(err)
	}
	runInputs(t, in)
	return in
}

// runInputs runs the inputs until the test ends.
func runInputs(t *testing.T, in *Inputs) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func awaitInputs(t *testing.T, in *Inputs, what string, good func(Current, bool, status.InputState) bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		now, ok := in.Current()
		var facts status.InputState
		for _, s := range in.States() {
			if s.Name == "facts" {
				facts = s
			}
		}
		if good(now, ok, facts) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited for %s, have %t, %+v, %+v", what, ok, facts, now.Facts)
		}
	}
}

// TestStartWithoutTheAPI starts from the state directory while the API server is unreachable, and
// does not start from an empty directory.
func TestStartWithoutTheAPI(t *testing.T) {
	t.Parallel()
	server, state := kubetest.New(t), t.TempDir()
	server.Put(t, "apiVersion: v1\nkind: Node\nmetadata: {name: w1}\nstatus: {addresses: [{type: InternalIP, address: 203.0.113.2}]}")
	has := func(want string) func(Current, bool, status.InputState) bool {
		return func(c Current, ok bool, _ status.InputState) bool {
			return ok && len(c.Facts.Nodes) == 1 && c.Facts.Nodes[0].Addrs[0].String() == want
		}
	}
	awaitInputs(t, apiInputs(t, server, state), "facts of the API", func(c Current, ok bool, s status.InputState) bool {
		_, err := os.Stat(filepath.Join(state, factsFile))
		return has("203.0.113.2")(c, ok, s) && s.OK && s.From == "kubernetes API" && s.Since == nil && err == nil
	})
	server.SetUnreachable(true)
	unreachable := func(s status.InputState) bool { return !s.OK && s.From == "last good copy" && s.Since != nil }
	again := apiInputs(t, server, state)
	awaitInputs(t, again, "facts of the state directory", func(c Current, ok bool, s status.InputState) bool {
		return has("203.0.113.2")(c, ok, s) && unreachable(s) && strings.Contains(s.Error, "kubernetes API at http://127.0.0.1")
	})
	awaitInputs(t, apiInputs(t, server, t.TempDir()), "the error of a start without facts", func(_ Current, ok bool, s status.InputState) bool {
		return !ok && unreachable(s)
	})
	server.Put(t, "apiVersion: v1\nkind: Node\nmetadata: {name: w1}\nstatus: {addresses: [{type: InternalIP, address: 203.0.113.9}]}")
	server.SetUnreachable(false)
	awaitInputs(t, again, "the API again", has("203.0.113.9"))
}

// TestSetHolders checks that a cluster with gateways selected by labels has no inputs until their
// holders are known. The holders are then the gateways' nodes. Readers such as the name server learn
// that the inputs are complete.
func TestSetHolders(t *testing.T) {
	t.Parallel()
	f := &fabric.Fabric{APIVersion: fabric.APIVersion, Name: "demo", Clusters: []fabric.Cluster{
		{Name: "g1", Gateways: []fabric.Gateway{{Name: "edge-1", NodeSelector: map[string]string{"role": "edge"}}}},
	}}
	complete := false // the inputs at the last call of Changed
	var in *Inputs
	in, err := Open(Config{
		Cluster: "g1", Node: "w1", FabricDir: t.TempDir(), StateDir: t.TempDir(), FactsDir: t.TempDir(),
		Log: slog.New(slog.DiscardHandler), Changed: func() { _, complete = in.Current() },
	})
	if err != nil {
		t.Fatal(err)
	}
	in.fabric.have, in.fabric.value.Fabric = true, f
	if view, ok := in.ElectionView(); !ok || len(view.Gateways) != 1 {
		t.Errorf("election view %+v, %t", view, ok)
	}
	in.saved = &model.Facts{}
	if _, ok := in.Current(); ok {
		t.Error("inputs are complete before the holders are known")
	}
	in.SetHolders(map[string]string{"edge-1": "w1"})
	now, ok := in.Current()
	if !ok || now.Fabric.Cluster("g1").GatewayOn("w1") == nil || in.gateway() == nil {
		t.Errorf("complete: %t, this node is not the gateway that it holds", ok)
	}
	if !complete {
		t.Error("Changed was not called when the holders completed the inputs")
	}
	if again, _ := in.Current(); again.Fabric != now.Fabric {
		t.Error("the same fabric and holders are another fabric")
	}
	in.SetHolders(nil)
	if in.gateway() != nil || f.Cluster("g1").Gateways[0].Node != "" {
		t.Error("the gateway has a node without a holder")
	}
}
