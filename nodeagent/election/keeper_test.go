package election_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/election"
	"hawser.dev/hawser/nodeagent/kube"
	"hawser.dev/hawser/nodeagent/kube/kubetest"
	"hawser.dev/hawser/nodeagent/model"
)

// released is a Lease that its holder gave back.
const released = `apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: hawser-gateway-edge-1, namespace: hawser-system, labels: {a: b}}
spec: {leaseDurationSeconds: 1, leaseTransitions: 4, renewTime: "2026-01-02T03:04:05.000000Z"}
`

func gateways() []election.Gateway {
	return []election.Gateway{{Name: "edge-1", Selector: map[string]string{"role": "edge"}}}
}

// guard records until when it is open.
type guard struct {
	mu    sync.Mutex
	until time.Time
}

func (g *guard) Open(until time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = until
	return nil
}
func (g *guard) Close() error  { return g.Open(time.Time{}) }
func (g *guard) Remove() error { return g.Close() }

func (g *guard) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Now().Before(g.until)
}

func client(t *testing.T, server *kubetest.Server) *kube.Client {
	t.Helper()
	c, err := kube.Open(kube.Config{Kubeconfig: server.Kubeconfig(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

// TestKeeper: two nodes hold a gateway by the API and by a folder: one takes it, keeps it
// over renewals, and gives it back when its agent ends; its kernel is closed when the other
// one's opens. All know who holds it.
func TestKeeper(t *testing.T) {
	t.Parallel()
	stores := map[string]func(t *testing.T) func() election.Store{
		"api": func(t *testing.T) func() election.Store {
			server := kubetest.New(t)
			server.Put(t, released)
			return func() election.Store { return kube.NewLeases(client(t, server), func() bool { return true }) }
		},
		"folder": func(t *testing.T) func() election.Store {
			dir := t.TempDir()
			first := election.NewFolder(dir, gateways)
			if _, err := first.Write(t.Context(), election.Lease{Gateway: "edge-1", Released: true, Turn: 4, Version: "0"}); err != nil {
				t.Fatal(err)
			}
			return func() election.Store { return election.NewFolder(dir, gateways) }
		},
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := store(t)
			nodes := []model.Node{{Name: "a", Labels: map[string]string{"role": "edge"}}, {Name: "b", Labels: map[string]string{"role": "edge"}}}
			keepers, guards := map[string]*election.Keeper{}, map[string]*guard{"a": {}, "b": {}, "c": {}}
			for node := range guards {
				keepers[node] = election.New(election.Config{
					Node: node, Store: open(), Guard: guards[node], StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
					View: func() (election.View, bool) {
						return election.View{Node: node, Gateways: gateways(), Nodes: nodes}, true
					},
					Clear: func(time.Time) bool { return true }, Changed: func() {},
				})
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			for _, k := range keepers {
				running.Go(func() { _ = k.Run(ctx) })
			}
			t.Cleanup(func() { cancel(); running.Wait() })
			holder := func(who string) string {
				all, ok := keepers[who].Holders()
				if !ok {
					return "not known"
				}
				return all["edge-1"]
			}
			wait(t, "one holds it", func() bool { return holder("a") == "a" || holder("b") == "b" })
			first, second := holder("c"), "b"
			wait(t, "the worker knows", func() bool { first = holder("c"); return first == "a" || first == "b" })
			if first == "b" {
				second = "a"
			}
			// It is renewed: the first deadline passes, and it is the gateway still.
			for end := time.Now().Add(election.GuardAfter + time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if !guards[first].open() || guards[second].open() || guards["c"].open() {
					t.Fatalf("open: %s %t, %s %t, worker %t", first, guards[first].open(), second, guards[second].open(), guards["c"].open())
				}
			}
			keepers[first].Leave(ctx)
			if guards[first].open() {
				t.Error("gave it back with its kernel open")
			}
			wait(t, "the other one holds it, and all know", func() bool {
				return guards[second].open() && holder(second) == second && holder("c") == second && holder(first) == second
			})
			if guards[first].open() {
				t.Error("both kernels are open")
			}
		})
	}
}

// TestLeases: what the API holds is read as it is meant, and a write is refused that does
// not know the newest.
func TestLeases(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	server.Put(t, released)
	s := kube.NewLeases(client(t, server), func() bool { return true })
	before, err := s.Read(t.Context(), "edge-1")
	if err != nil || !before.Released || before.Turn != 4 || before.Holder != "" {
		t.Fatalf("%+v, %v", before, err)
	}
	taken := before
	taken.Holder, taken.Turn, taken.Released, taken.Renewed = "a", 5, false, time.Now()
	stored, err := s.Write(t.Context(), taken)
	if err != nil || stored.Holder != "a" || stored.Turn != 5 || stored.Released || stored.Version == before.Version {
		t.Fatalf("%+v, %v", stored, err)
	}
	object := server.Get("leases", "hawser-system/hawser-gateway-edge-1")
	if object.GetLabels()["a"] != "b" {
		t.Error("a write took the labels away")
	}
	if _, err := s.Write(t.Context(), taken); err != election.ErrConflict {
		t.Errorf("a write of an older version: %v, want a conflict", err)
	}
	if _, err := s.Read(t.Context(), "edge-2"); err == nil {
		t.Error("a Lease that is not there was read")
	}
	server.Put(t, "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: hawser-gateway-edge-1, namespace: hawser-system}\n")
	if fresh, err := s.Read(t.Context(), "edge-1"); err != nil || fresh.Released || fresh.Holder != "" {
		t.Errorf("one that was never held: %+v, %v", fresh, err)
	}
}
