package election_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/cluster/election"
	"hawser.dev/hawser/nodeagent/cluster/kube"
	"hawser.dev/hawser/nodeagent/cluster/kube/kubetest"
	"hawser.dev/hawser/nodeagent/model"
)

// released is a Lease that its holder released.
const released = `apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: hawser-gateway-edge-1, namespace: hawser-system, labels: {a: b}}
spec: {leaseDurationSeconds: 1, leaseTransitions: 4, renewTime: "2026-01-02T03:04:05.000000Z"}
`

func gateways() []election.Gateway {
	return []election.Gateway{{Name: "edge-1", Selector: map[string]string{"role": "edge"}}}
}

// fence records its deadline.
type fence struct {
	mu    sync.Mutex
	until time.Time
}

func (f *fence) AllowUntil(until time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = until
	return nil
}
func (f *fence) Block() error  { return f.AllowUntil(time.Time{}) }
func (f *fence) Remove() error { return f.Block() }

func (f *fence) open() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.until)
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

// TestElector elects one of two nodes, with Leases in the API and in a directory. The holder renews
// its Lease, and releases it when its agent stops. Its fence closes before the fence of the other
// node opens. All nodes know the holder.
func TestElector(t *testing.T) {
	t.Parallel()
	stores := map[string]func(t *testing.T) func() election.LeaseStore{
		"api": func(t *testing.T) func() election.LeaseStore {
			server := kubetest.New(t)
			server.Put(t, released)
			return func() election.LeaseStore {
				return kube.NewLeaseStore(client(t, server), func() bool { return true }, slog.New(slog.DiscardHandler))
			}
		},
		"directory": func(t *testing.T) func() election.LeaseStore {
			dir := t.TempDir()
			first := election.NewDirStore(dir, gateways, slog.New(slog.DiscardHandler))
			if _, err := first.Write(t.Context(), election.Lease{Gateway: "edge-1", Released: true, Transitions: 4, Version: "0"}); err != nil {
				t.Fatal(err)
			}
			return func() election.LeaseStore { return election.NewDirStore(dir, gateways, slog.New(slog.DiscardHandler)) }
		},
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := store(t)
			nodes := []model.Node{{Name: "a", Labels: map[string]string{"role": "edge"}}, {Name: "b", Labels: map[string]string{"role": "edge"}}}
			electors, fences := map[string]*election.Elector{}, map[string]*fence{"a": {}, "b": {}, "c": {}}
			for node := range fences {
				electors[node] = election.New(election.Config{
					Node: node, Store: open(), Fence: fences[node], StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
					View: func() (election.ClusterView, bool) {
						return election.ClusterView{Node: node, Gateways: gateways(), Nodes: nodes}, true
					},
					TunnelsRemoved: func(time.Time) bool { return true }, Trigger: trigger.New(),
					OnChange: func(map[string]string) {},
				})
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			for _, k := range electors {
				running.Go(func() { _ = k.Run(ctx) })
			}
			t.Cleanup(func() { cancel(); running.Wait() })
			holder := func(who string) string {
				all, ok := electors[who].Holders()
				if !ok {
					return "unknown"
				}
				return all["edge-1"]
			}
			wait(t, "one node holds the gateway", func() bool { return holder("a") == "a" || holder("b") == "b" })
			first, second := holder("c"), "b"
			wait(t, "the worker knows the holder", func() bool { first = holder("c"); return first == "a" || first == "b" })
			if first == "b" {
				second = "a"
			}
			// The holder renews the Lease: its fence stays open after the first
			// deadline.
			for end := time.Now().Add(election.FenceDeadline + time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if !fences[first].open() || fences[second].open() || fences["c"].open() {
					t.Fatalf("open: %s %t, %s %t, worker %t", first, fences[first].open(), second, fences[second].open(), fences["c"].open())
				}
			}
			electors[first].Release(ctx)
			if fences[first].open() {
				t.Error("released the gateway with an open fence")
			}
			wait(t, "the other node holds the gateway, and all know", func() bool {
				return fences[second].open() && holder(second) == second && holder("c") == second && holder(first) == second
			})
			if fences[first].open() {
				t.Error("both fences are open")
			}
		})
	}
}

// silentStore is a LeaseStore that never reads a Lease, as if the API were unreachable.
type silentStore struct{ election.LeaseStore }

func (silentStore) Watch(ctx context.Context, _ trigger.Trigger) { <-ctx.Done() }
func (silentStore) Leases() (map[string]election.Lease, bool)    { return nil, false }

// TestElectorWithoutLeases starts an agent that cannot read the Leases. After RenewDeadline the
// agent uses the holders that the previous agent saved. It omits its own node: another node may
// have acquired the gateway.
func TestElectorWithoutLeases(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, election.HoldersFile), []byte(`{"edge-1":"a","edge-2":"b"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		notified := make(chan map[string]string, 10)
		e := election.New(election.Config{
			Node: "a", Store: silentStore{}, Fence: &fence{}, StateDir: dir, Log: slog.New(slog.DiscardHandler), Trigger: trigger.New(),
			View: func() (election.ClusterView, bool) {
				return election.ClusterView{Node: "a", Gateways: gateways()}, true
			},
			TunnelsRemoved: func(time.Time) bool { return false },
			OnChange:       func(holders map[string]string) { notified <- holders },
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		started := time.Now()
		go func() { _ = e.Run(ctx) }()
		synctest.Wait()
		if _, ok := e.Holders(); ok || len(notified) > 0 {
			t.Error("holders are known before the Leases could be read")
		}
		holders := <-notified
		if waited := time.Since(started); waited != election.RenewDeadline {
			t.Errorf("notified after %s, want %s", waited, election.RenewDeadline)
		}
		if len(holders) != 1 || holders["edge-2"] != "b" {
			t.Errorf("holders %v, want the ones of other nodes", holders)
		}
		cancel()
		synctest.Wait()
	})
}

// TestLeases reads and writes Leases in the API, and checks that a write of an older version
// returns ErrConflict.
func TestLeases(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	server.Put(t, released)
	s := kube.NewLeaseStore(client(t, server), func() bool { return true }, slog.New(slog.DiscardHandler))
	before, err := s.Read(t.Context(), "edge-1")
	if err != nil || !before.Released || before.Transitions != 4 || before.Holder != "" {
		t.Fatalf("%+v, %v", before, err)
	}
	stale := kube.NewLeaseStore(client(t, server), func() bool { return true }, slog.New(slog.DiscardHandler))
	if _, err := stale.Read(t.Context(), "edge-1"); err != nil {
		t.Fatal(err)
	}
	sent := len(server.Requests())
	taken := before
	taken.Holder, taken.Transitions, taken.Released, taken.Renewed = "a", 5, false, time.Now()
	stored, err := s.Write(t.Context(), taken)
	if err != nil || stored.Holder != "a" || stored.Transitions != 5 || stored.Released || stored.Version == before.Version {
		t.Fatalf("%+v, %v", stored, err)
	}
	if requests := server.Requests(); len(requests) != sent+1 {
		t.Errorf("a write took the requests %v, want one", requests[sent:])
	}
	object := server.Get("leases", "hawser-system/hawser-gateway-edge-1")
	if object.GetLabels()["a"] != "b" {
		t.Error("a write removed the labels")
	}
	if _, err := s.Write(t.Context(), taken); err != election.ErrConflict {
		t.Errorf("a write of an older version: %v, want a conflict", err)
	}
	if _, err := stale.Write(t.Context(), taken); err != election.ErrConflict {
		t.Errorf("a write of an older version that the store has not seen change: %v, want a conflict", err)
	}
	if _, err := s.Read(t.Context(), "edge-2"); err == nil {
		t.Error("a missing Lease was read")
	}
	server.Put(t, "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: hawser-gateway-edge-1, namespace: hawser-system}\n")
	if fresh, err := s.Read(t.Context(), "edge-1"); err != nil || fresh.Released || fresh.Holder != "" {
		t.Errorf("never held: %+v, %v", fresh, err)
	}
}

// TestLeasesNotRead checks that both stores log why they cannot read the Leases.
func TestLeasesNotRead(t *testing.T) {
	t.Parallel()
	server, dir := kubetest.New(t), t.TempDir()
	server.SetForbidden("leases", true)
	if err := os.Mkdir(filepath.Join(dir, "edge-1.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	stores := map[string]func(*slog.Logger) election.LeaseStore{
		"leases is forbidden": func(log *slog.Logger) election.LeaseStore {
			return kube.NewLeaseStore(client(t, server), func() bool { return true }, log)
		},
		"is a directory": func(log *slog.Logger) election.LeaseStore { return election.NewDirStore(dir, gateways, log) },
	}
	for want, store := range stores {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			lines := make(chan string, 100)
			s := store(slog.New(slog.NewTextHandler(lineWriter(lines), nil)))
			var running sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			running.Go(func() { s.Watch(ctx, trigger.New()) })
			line := <-lines
			cancel()
			running.Wait()
			if !strings.Contains(line, want) || len(lines) > 0 {
				t.Errorf("%d more lines after %s", len(lines), line)
			}
			if _, ok := s.Leases(); ok {
				t.Error("the Leases count as read")
			}
		})
	}
}

// lineWriter sends each line.
type lineWriter chan string

func (w lineWriter) Write(line []byte) (int, error) {
	w <- string(line)
	return len(line), nil
}
