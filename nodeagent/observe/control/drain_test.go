package control

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/nodeagent/status"
)

func TestDrainSurvivesRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, want := range []bool{false, true, true, false} {
		d, err := OpenDrain(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.set(want); err != nil {
			t.Fatal(err)
		}
		again, err := OpenDrain(dir)
		if err != nil || d.Active() != want || again.Active() != want {
			t.Errorf("drained %t, after a restart %t (%v), want %t", d.Active(), again.Active(), err, want)
		}
	}
	if _, err := OpenDrain(filepath.Join(dir, "below", "a directory")); err != nil {
		t.Errorf("a directory that does not exist: %v", err)
	}
	d := &Drain{path: filepath.Join(t.TempDir(), "no", "directory")}
	if err := d.set(true); err == nil || d.Active() {
		t.Errorf("a mark that cannot be written: drained %t (%v)", d.Active(), err)
	}
}

func TestDrainUntilRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := OpenDrain(dir)
	if err != nil {
		t.Fatal(err)
	}
	d.drainUntilRestart()
	again, err := OpenDrain(dir)
	if err != nil || !d.Active() || again.Active() {
		t.Errorf("drained %t, after a restart %t (%v)", d.Active(), again.Active(), err)
	}
	if err := d.set(false); err != nil || d.Active() {
		t.Errorf("undrained: drained %t (%v)", d.Active(), err)
	}
	d.drainUntilRestart()
	if err := d.set(true); err != nil {
		t.Fatal(err)
	}
	if again, err = OpenDrain(dir); err != nil || !again.Active() {
		t.Errorf("a drain by a user does not survive a restart: %v", err)
	}
}

// TestDrill checks that a drill ends at its end or on request. It does not survive a restart, and
// does not end another drain.
func TestDrill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mark, err := OpenDrain(dir)
	if err != nil {
		t.Fatal(err)
	}
	changes := make(chan struct{}, 16)
	c := New(Config{Log: slog.New(slog.DiscardHandler), Drain: mark, Metrics: http.NotFoundHandler(), OnDrainChange: func() { changes <- struct{}{} },
		Outcome: func() round.Outcome { return round.Outcome{} }})
	post := func(path string) int {
		answer := httptest.NewRecorder()
		c.SocketHandler().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, path, nil))
		return answer.Code
	}
	for _, path := range []string{"/drain/drill", "/drain/drill?for=-1s", "/drain/drill?for=11m", "/drain/drill?for=x"} {
		if code := post(path); code != http.StatusBadRequest || mark.Active() {
			t.Errorf("%s: %d, drained %t", path, code, mark.Active())
		}
	}
	post("/drain/drill?for=1m")
	again, err := OpenDrain(dir)
	if err != nil || !mark.Active() || again.Active() {
		t.Errorf("drained %t, after a restart %t (%v)", mark.Active(), again.Active(), err)
	}
	post("/drain/drill?for=2m") // a later end
	if len(changes) != 1 {
		t.Errorf("%d changes, want 1", len(changes))
	}
	post("/drain")
	if post("/drain/drill?for=0s"); !mark.Active() {
		t.Error("the end of a drill ended another drain")
	}
	if post("/undrain"); mark.Active() {
		t.Error("still drained")
	}
	for len(changes) > 0 {
		<-changes
	}
	post("/drain/drill?for=20ms") // no request ends it
	<-changes
	<-changes // OnDrainChange after its end
	if mark.Active() {
		t.Error("a drill without a caller does not end")
	}
}

func TestIdleAfterDrainRest(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	d := &Drain{used: now}
	for _, step := range []struct {
		after time.Duration
		used  bool
		want  bool
	}{{0, true, false}, {time.Second / 2, false, false}, {time.Second / 4, true, false}, {time.Second * 3 / 4, false, false},
		{time.Second / 4, false, true}, {time.Minute, false, true}, {0, true, false}} {
		now = now.Add(step.after)
		if got := d.isIdle(step.used, now); got != step.want {
			t.Errorf("%+v: left %t", step, got)
		}
	}
}

// TestControlIsNotPublic checks that only the handler of the unix socket drains the gateway and
// reveals the status.
func TestControlIsNotPublic(t *testing.T) {
	t.Parallel()
	mark, err := OpenDrain(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	announced := 0
	c := New(Config{
		Cluster: "g1", Node: "n", Log: slog.New(slog.DiscardHandler), Drain: mark, Metrics: http.NotFoundHandler(),
		OnDrainChange: func() { announced++ }, Ready: func() bool { return false }, Snapshot: func() any { return nil },
		Status: func() status.Status { return status.Status{} }, Outcome: func() round.Outcome { return round.Outcome{} },
	})
	request := func(h http.Handler, method, path string) int {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(method, path, nil))
		return answer.Code
	}
	for _, path := range []string{"/drain", "/drain/drill?for=1m", "/undrain", "/snapshot", "/status", "/diagnose"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if code := request(c.TCPHandler(), method, path); code == http.StatusOK || mark.Active() {
				t.Errorf("%s %s in public: %d, drained %t", method, path, code, mark.Active())
			}
		}
	}
	for _, step := range []struct {
		path string
		want bool
	}{{"/drain", true}, {"/drain", true}, {"/undrain", false}} {
		if code := request(c.SocketHandler(), http.MethodPost, step.path); code != http.StatusOK || mark.Active() != step.want {
			t.Errorf("%s: %d, drained %t", step.path, code, mark.Active())
		}
	}
	if announced != 3 {
		t.Errorf("a drain is announced %d times, want one for each request", announced)
	}
}
