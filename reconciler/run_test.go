package reconciler

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func TestRunServesAndStops(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, false)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx, listener) }()
	waitFor(t, "the first failure", func() bool { return strings.Contains(get(t, base+"/readyz", 503), "no such branch") })
	get(t, base+"/healthz", 200)

	g.commit(TopologyFile, topologyOf("g1", "g2"))
	waitFor(t, "the commit published", func() bool { return g.Status().Ready })
	startedAt := time.Now()
	want := g.commit(TopologyFile, topologyOf("g1", "g2", "g3"))
	waitFor(t, "the next commit published", func() bool { s := g.Status(); return s.Active.Commit == want })
	t.Logf("commit to published, git commit included: %s", time.Since(startedAt))

	var s Status
	if err := json.Unmarshal([]byte(get(t, base+"/status", 200)), &s); err != nil {
		t.Fatal(err)
	}
	if s.Active.Commit != want || s.Published != g.published() || s.FabricDigest == "" {
		t.Errorf("status %+v", s)
	}
	metrics := get(t, base+"/metrics", 200)
	for _, line := range []string{`hawser_reconciler_publishes_total 2`, `hawser_reconciler_failures_total{reason="no-branch"}`,
		`published="` + s.Published + `"`, `hawser_reconciler_failing 0`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("metrics lack %s", line)
		}
	}
	g.commit(TopologyFile, "nonsense")
	waitFor(t, "the failure", func() bool { return strings.Contains(get(t, base+"/readyz", 200), "last good revision "+want) })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestLongOutage: each retry waits, however long the git server does not answer.
func TestLongOutage(t *testing.T) {
	t.Parallel()
	const interval, retries, counted = 5 * time.Millisecond, 70, 20
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g := newTestEnv(t, false)
	var r *Reconciler
	var from, to time.Time
	g.cfg.Interval = interval
	g.cfg.Now = func() time.Time {
		now := time.Now()
		switch passes := countPasses(t, r); {
		case passes == retries-counted && from.IsZero():
			from = now
		case passes == retries && to.IsZero():
			to = now
			cancel()
		}
		return now
	}
	if err := os.RemoveAll(g.repo); err != nil {
		t.Fatal(err)
	}
	r = g.newReconciler()
	r.loop(ctx)
	if failed := r.Status().LastError; failed == nil || failed.Refused() {
		t.Fatalf("the failure is not retried: %v", failed)
	}
	if waited := to.Sub(from); from.IsZero() || waited < counted*interval {
		t.Errorf("%d retries within %s, want at least %s", counted, waited, counted*interval)
	}
}

func countPasses(t *testing.T, r *Reconciler) int {
	families, err := r.metrics.registry.Gather()
	if err != nil {
		t.Error(err)
	}
	for _, family := range families {
		if family.GetName() == "hawser_reconciler_passes_total" {
			return int(family.GetMetric()[0].GetCounter().GetValue())
		}
	}
	t.Error("there is no counter of passes")
	return 0
}

func get(t *testing.T, url string, code int) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != code {
		return ""
	}
	return string(body)
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestStoppedPassIsNoFailure(t *testing.T) {
	t.Parallel()
	g := newTestEnv(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, failure := g.Once(ctx); failure == nil || g.Status().LastError != nil {
		t.Errorf("failure %v, status %+v", failure, g.Status())
	}
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	var s Status
	for i := range 3 * maxCommits {
		s.recordCommit(CommitStatus{Commit: string(rune('a' + i%40))})
	}
	if len(s.Commits) != maxCommits {
		t.Errorf("%d commits", len(s.Commits))
	}
}

var errSample = errors.New("sample")

func TestFailureUnwraps(t *testing.T) {
	t.Parallel()
	if !errors.Is(fail(ReasonFetch, "", errSample), errSample) {
		t.Error("the cause is lost")
	}
}
