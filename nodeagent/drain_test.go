package nodeagent

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/health"
)

func TestDrainSurvivesRestarts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), drainedFile)
	for _, want := range []bool{false, true, true, false} {
		d, err := newDrain(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.set(want); err != nil {
			t.Fatal(err)
		}
		again, err := newDrain(path)
		if err != nil || d.is() != want || again.is() != want {
			t.Errorf("drained %t, after a restart %t (%v), want %t", d.is(), again.is(), err, want)
		}
	}
	if _, err := newDrain(filepath.Join(path, "below", "a file")); err != nil {
		t.Errorf("a folder that does not exist: %v", err)
	}
	d := &drain{path: filepath.Join(t.TempDir(), "no", "folder")}
	if err := d.set(true); err == nil || d.is() {
		t.Errorf("a mark that cannot be written: drained %t (%v)", d.is(), err)
	}
}

func TestDrainUntilTheAgentEnds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), drainedFile)
	d, err := newDrain(path)
	if err != nil {
		t.Fatal(err)
	}
	d.pass()
	again, err := newDrain(path)
	if err != nil || !d.is() || again.is() {
		t.Errorf("drained %t, after a restart %t (%v)", d.is(), again.is(), err)
	}
	if err := d.set(false); err != nil || d.is() {
		t.Errorf("taken back: drained %t (%v)", d.is(), err)
	}
	d.pass()
	if err := d.set(true); err != nil {
		t.Fatal(err)
	}
	if again, err = newDrain(path); err != nil || !again.is() {
		t.Errorf("a person's drain does not survive: %v", err)
	}
}

func TestDrainIsOverAfterARest(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	d := &drain{used: now}
	for _, step := range []struct {
		after time.Duration
		used  bool
		want  bool
	}{{0, true, false}, {time.Second / 2, false, false}, {time.Second / 4, true, false}, {time.Second * 3 / 4, false, false},
		{time.Second / 4, false, true}, {time.Minute, false, true}, {0, true, false}} {
		now = now.Add(step.after)
		if got := d.left(step.used, now); got != step.want {
			t.Errorf("%+v: left %t", step, got)
		}
	}
}

// TestControlIsNotPublic asks both handlers to drain: only the unix socket's does, and
// only that tells what the clusterset is like inside.
func TestControlIsNotPublic(t *testing.T) {
	t.Parallel()
	mark, err := newDrain(filepath.Join(t.TempDir(), drainedFile))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	a := &Agent{
		config: Config{Cluster: "g1", Node: "n"}, log: log, metrics: newMetrics("g1", "n"), drain: mark,
		trigger: make(chan struct{}, 1), urgent: make(chan struct{}, 1), choice: newChoice("g1", log, time.Now()),
	}
	a.peers = newPeers(a.config, log, peersHooks{look: func() {}, urgent: func() {}})
	a.shown.Store(&view{})
	ask := func(h http.Handler, method, path string) int {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(method, path, nil))
		return answer.Code
	}
	for _, path := range []string{"/drain", "/undrain", "/sight", "/status", "/diagnose"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if code := ask(a.public(), method, path); code == http.StatusOK || mark.is() {
				t.Errorf("%s %s in public: %d, drained %t", method, path, code, mark.is())
			}
		}
	}
	for _, step := range []struct {
		path string
		want bool
	}{{"/drain", true}, {"/drain", true}, {"/undrain", false}} {
		if code := ask(a.control(), http.MethodPost, step.path); code != http.StatusOK || mark.is() != step.want {
			t.Errorf("%s: %d, drained %t", step.path, code, mark.is())
		}
	}
	if len(a.urgent) != 1 || len(a.trigger) != 1 {
		t.Error("nobody looks anew after a drain")
	}
}

// TestNeeded: without another gateway here, the other cluster has no other way.
func TestNeeded(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.own()
	d.look()
	var links []health.Link
	for _, l := range d.links {
		links = append(links, l)
	}
	v := sight{fabric: d.fabric, cluster: "g1", gateway: "a", snapshot: health.SnapshotOf(health.Peer{Cluster: "g1", Gateway: "a"}, links)}
	if have := d.choice.needed(v, nil); len(have) != 1 || have[0] != "g2" {
		t.Errorf("needed by %v, want g2", have)
	}
	// Beside gateway b, the links that a sees of its own are others'.
	v.gateway = "b"
	if have := d.choice.needed(v, nil); len(have) != 0 {
		t.Errorf("needed by %v, though a has links that live", have)
	}
}
