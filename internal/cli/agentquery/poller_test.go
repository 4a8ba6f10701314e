package agentquery

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

// fakeAgent answers requests on the agent's socket of a node in a lab's directory.
type fakeAgent struct {
	mode   atomic.Int32 // answers, hangs or fails
	passes atomic.Int32 // answers so far
	close  func()
}

const (
	modeAnswer = iota
	modeHang
	modeFail
)

func newFakeAgent(t *testing.T, lab, node string) *fakeAgent {
	t.Helper()
	dir := filepath.Join(lab, "nodes", node, "run")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	a := &fakeAgent{}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch a.mode.Load() {
		case modeHang:
			<-r.Context().Done()
		case modeFail:
			http.Error(w, "no", http.StatusInternalServerError)
		default:
			s := status.Status{Cluster: "g1", Node: node, Version: string(rune('a' + a.passes.Add(1)%26))}
			_ = json.NewEncoder(w).Encode(s)
		}
	})}
	go func() { _ = server.Serve(listener) }()
	a.close = func() { _ = server.Close() }
	t.Cleanup(a.close)
	return a
}

// TestPoller checks that Poll reports a silent agent within two seconds, with the time of its last
// answer. The reports of other agents stay fresh. An agent that answers again is no longer silent.
func TestPoller(t *testing.T) {
	t.Parallel()
	lab, err := os.MkdirTemp("", "poll") // the path of a unix socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(lab) })
	one, two := newFakeAgent(t, lab, "n1"), newFakeAgent(t, lab, "n2")
	p := Poller{Targets: func() Targets { return Targets{Lab: lab} }}
	poll := func(want string) PolledReports {
		t.Helper()
		startedAt := time.Now()
		got, err := p.Poll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(startedAt); took > 2*time.Second {
			t.Errorf("a poll took %s", took)
		}
		var have []string
		for _, a := range got.Agents {
			have = append(have, a.Node)
		}
		for i := range got.Silent {
			u := &got.Silent[i]
			text := u.Node + " silent"
			if u.Cluster == "" || u.LastAnswer == nil || u.Error == "" || len(got.Old) != len(got.Silent) {
				text += " of unknown place or time"
			}
			have = append(have, text)
		}
		if strings.Join(have, ", ") != want {
			t.Errorf("have %q, want %q", have, want)
		}
		return got
	}
	poll("n1, n2")
	one.mode.Store(modeHang)
	frozen := time.Now()
	last := *poll("n2, n1 silent").Silent[0].LastAnswer
	if delay := time.Since(frozen); delay > 2*time.Second || last.After(frozen) {
		t.Errorf("named after %s, with a last answer %s after it began", delay, last.Sub(frozen))
	}
	for range 5 { // no poll waits for n1
		before, startedAt := two.passes.Load(), time.Now()
		if got := poll("n2, n1 silent").Silent[0].LastAnswer; !got.Equal(last) {
			t.Errorf("the last answer moved from %s to %s", last, got)
		}
		if two.passes.Load() == before || time.Since(startedAt) > time.Second {
			t.Errorf("n2 was not asked, or answered after %s", time.Since(startedAt))
		}
	}
	two.mode.Store(modeFail)
	poll("n1 silent, n2 silent")
	one.mode.Store(modeAnswer)
	two.mode.Store(modeAnswer)
	deadline := time.Now().Add(agentTimeout + 3*time.Second)
	for {
		got, err := p.Poll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Silent) == 0 && len(got.Agents) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("silent still: %+v", got.Silent)
		}
	}
	// A stopped agent has no socket, and stays in the list.
	two.close()
	if err := os.Remove(filepath.Join(lab, "nodes", "n2", "run", "agent.sock")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	poll("n1, n2 silent")
	// A removed node leaves the list.
	if err := os.RemoveAll(filepath.Join(lab, "nodes", "n2")); err != nil {
		t.Fatal(err)
	}
	poll("n1")
}
