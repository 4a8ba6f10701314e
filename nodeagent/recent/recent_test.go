package recent

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/status"
)

func start() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// TestSize: whatever an agent goes through, less than 1 MiB is kept of it.
func TestSize(t *testing.T) {
	t.Parallel()
	var r Ring
	for i := range 3 * mostSamples {
		r.Sample(status.Status{Problems: make([]status.Problem, 1000)}, start().Add(time.Duration(i)*every))
		long := strings.Repeat("x", 10_000)
		r.Report(converge.Report{
			Objects: map[string]int{fmt.Sprint("kind", i): 1},
			Changed: []converge.Change{{Kind: fmt.Sprint("other", i), Key: long, Origin: long}},
			Failed:  []converge.Problem{{Kind: "kind1", Err: errors.New(long)}},
		})
	}
	got := r.Recent("g1", "n")
	if len(got.Samples) != mostSamples || len(got.Changes) != mostChanges || len(got.Kinds) != mostKinds {
		t.Errorf("%d samples, %d changes, %d kinds are kept", len(got.Samples), len(got.Changes), len(got.Kinds))
	}
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if size := int(unsafe.Sizeof(r)) + len(raw); size >= 1<<20 {
		t.Errorf("%d bytes are kept at most, want less than 1 MiB", size)
	}
}

// TestSamples: an hour is kept, in order, with the rates between two samples.
func TestSamples(t *testing.T) {
	t.Parallel()
	var r Ring
	link := func(rx, tx int64, state string, chosen bool) status.Connection {
		return status.Connection{RxBytes: rx, TxBytes: tx, Status: state, Chosen: chosen, Loss: 0.5, RTT: &status.RTT{Avg: 300}}
	}
	r.Sample(status.Status{Ready: true, Connections: []status.Connection{link(0, 0, status.Connected, true), link(0, 0, status.Disconnected, false)},
		Conntrack: &status.Conntrack{Entries: 7}, Dropped: []status.Dropped{{Packets: 2}, {Packets: 3}}}, start())
	r.Sample(status.Status{Connections: []status.Connection{link(1000, 50, status.Connected, false)}}, start().Add(every))
	r.Sample(status.Status{Connections: []status.Connection{link(10, 60, status.Connected, false)}}, start().Add(2*every))
	want := []status.Sample{
		{At: start(), Ready: true, Links: 2, Up: 1, RTTMicros: 300, Loss: 0.5, Connections: 7, Dropped: 5},
		{At: start().Add(every), Links: 1, Up: 1, RxRate: 100, TxRate: 5},
		{At: start().Add(2 * every), Links: 1, Up: 1}, // the tunnel was made anew
	}
	if d := cmp.Diff(want, r.Recent("g1", "n").Samples); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	for i := range mostSamples {
		r.Sample(status.Status{}, start().Add(time.Duration(3+i)*every))
	}
	got := r.Recent("g1", "n").Samples
	if first, last := got[0].At, got[len(got)-1].At; len(got) != mostSamples || !first.Equal(start().Add(3*every)) || last.Sub(first) != hour-every {
		t.Errorf("%d samples from %s to %s", len(got), first, last)
	}
}

// TestReport: each kind has the state of the last round, and what changed since the start.
func TestReport(t *testing.T) {
	t.Parallel()
	var r Ring
	made := converge.Change{Kind: "route", Op: diff.Create, Key: "7300/242.0.0.0", Origin: "clusters[g2]"}
	r.Report(converge.Report{
		At: start(), Objects: map[string]int{"route": 1, "link": 2, "peer": 3}, Changed: []converge.Change{made}, Drift: map[string]int{"route": 1},
		Blocked: []converge.Problem{{Kind: "peer", Key: "b", Err: errors.New("no device")}},
		Failed:  []converge.Problem{{Kind: "link", Err: errors.New("busy")}},
	})
	want := []status.Kind{
		{Name: "link", Objects: 2, State: failed, Why: "link: busy"},
		{Name: "peer", Objects: 3, State: waits, Why: "peer b: no device"},
		{Name: "route", Objects: 1, Drift: 1, State: done, Changed: 1},
	}
	if d := cmp.Diff(want, r.Recent("g1", "n").Kinds); d != "" {
		t.Errorf("kinds (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]status.Note{{At: start(), Text: made.String(), By: "clusters[g2]"}}, r.Recent("g1", "n").Changes); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	r.Report(converge.Report{At: start(), Objects: map[string]int{"route": 2, "link": 2, "peer": 3}})
	for _, k := range r.Recent("g1", "n").Kinds {
		if k.State != done || k.Why != "" {
			t.Errorf("%s is %s (%s) after a clean round", k.Name, k.State, k.Why)
		}
	}
}

// TestNothingYet prints lists, and not null.
func TestNothingYet(t *testing.T) {
	t.Parallel()
	var r Ring
	raw, err := json.Marshal(r.Recent("g1", "n"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(`{"cluster":"g1","node":"n","everySeconds":10,"samples":[],"kinds":[],"changes":[]}`, string(raw)); d != "" {
		t.Error(d)
	}
}
