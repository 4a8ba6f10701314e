package feed

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/mcs"
)

// testReceiver is a gateway that receives the state of a cluster, in simulated time.
type testReceiver struct {
	*testing.T
	now       time.Time
	firstSeen *firstSeen
	conn      *receiver
}

func newTestReceiver(t *testing.T, saved map[string]map[string]time.Time) *testReceiver {
	r := &testReceiver{T: t, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	r.firstSeen = newFirstSeen(func() time.Time { return r.now }, nil)
	r.firstSeen.restore(saved)
	r.connect(Peer{Cluster: "b"})
	return r
}

func (r *testReceiver) connect(peer Peer) {
	r.conn = newReceiver(peer, "self", r.firstSeen, func(reason string) { r.Errorf("refused: %s", reason) })
}

// receive applies an update that sets exports, and returns since when each export counts.
func (r *testReceiver) receive(created map[string]time.Time) map[string]time.Time {
	r.Helper()
	var changes []change
	if r.conn.version == 0 {
		changes = append(changes, clusterChange("b", "{}"))
	}
	for name, at := range created {
		changes = append(changes, setExport(r, "b", exportWithOffer(name, func(o *mcs.Offer) { o.Created = at })))
	}
	mustApply(r, r.conn, changes...)
	out := map[string]time.Time{}
	for _, e := range r.conn.states["b"].State.Exports {
		out[e.Name] = e.Offer.Created
	}
	return out
}

func (r *testReceiver) expect(have map[string]time.Time, name string, want time.Time) {
	r.Helper()
	if !have[name].Equal(want) {
		r.Errorf("%s counts since %v, want %v", name, have[name], want)
	}
}

// TestClaimIsAsOldAsItsFirstSight checks that a cluster cannot claim later that an export is older
// than its first sight, even after a restart of either end.
func TestClaimIsAsOldAsItsFirstSight(t *testing.T) {
	t.Parallel()
	r := newTestReceiver(t, nil)
	old, ancient := r.now.Add(-time.Hour), time.Unix(0, 0).UTC()
	// Of a new cluster no age is known: its claims count.
	r.expect(r.receive(map[string]time.Time{"first": old}), "first", old)

	r.now = r.now.Add(time.Hour)
	seen := r.now
	have := r.receive(map[string]time.Time{"forged": ancient, "fresh": seen.Add(-10 * time.Second), "ahead": seen.Add(time.Minute)})
	r.expect(have, "first", old)
	r.expect(have, "forged", seen)
	r.expect(have, "fresh", seen.Add(-10*time.Second)) // other clusters see the same
	r.expect(have, "ahead", seen.Add(time.Minute))

	r.now = r.now.Add(time.Hour)
	r.expect(r.receive(map[string]time.Time{"first": ancient}), "first", old)
	r.expect(r.receive(map[string]time.Time{"forged": ancient}), "forged", seen)
	r.connect(Peer{Cluster: "b"}) // another connection
	have = r.receive(map[string]time.Time{"first": old, "forged": ancient, "second": ancient})
	r.expect(have, "first", old)
	r.expect(have, "forged", seen)
	r.expect(have, "second", r.now)

	// A recreated export is as young as it claims.
	r.expect(r.receive(map[string]time.Time{"first": r.now}), "first", r.now)
	r.expect(r.receive(map[string]time.Time{"first": old}), "first", r.now)

	raw, err := json.Marshal(r.firstSeen.saved())
	if err != nil {
		t.Fatal(err)
	}
	var saved map[string]map[string]time.Time
	if err := json.Unmarshal(raw, &saved); err != nil {
		t.Fatal(err)
	}
	again := newTestReceiver(t, saved)
	again.now = r.now.Add(time.Hour)
	have = again.receive(map[string]time.Time{"forged": ancient, "third": ancient})
	again.expect(have, "forged", seen)
	again.expect(have, "third", again.now)
}

// TestAgesFromOwnGateways checks that nodes, and a gateway that takes over, accept the ages of
// their own cluster's gateways.
func TestAgesFromOwnGateways(t *testing.T) {
	t.Parallel()
	r := newTestReceiver(t, nil)
	seen := r.now.Add(-time.Minute)
	r.connect(Peer{Cluster: "self", Device: "hw-vx0"})
	r.expect(r.receive(map[string]time.Time{"forged": seen}), "forged", seen)
	r.now = r.now.Add(time.Hour)
	r.expect(r.receive(map[string]time.Time{"old": seen}), "old", seen)
	r.connect(Peer{Cluster: "b"})
	have := r.receive(map[string]time.Time{"forged": time.Unix(0, 0), "new": time.Unix(0, 0)})
	r.expect(have, "forged", seen)
	r.expect(have, "new", r.now)
	// A gateway that lost its file accepts any age; the others do not.
	r.connect(Peer{Cluster: "self", Device: "hw-vx0"})
	r.expect(r.receive(map[string]time.Time{"forged": time.Unix(0, 0)}), "forged", seen)
}

// TestAgesAreBounded checks that only ages of removed exports are forgotten.
func TestAgesAreBounded(t *testing.T) {
	t.Parallel()
	r := newTestReceiver(t, nil)
	at := r.now
	r.receive(map[string]time.Time{"stays": at})
	for i := range 5000 {
		name := fmt.Sprintf("e%d", i)
		r.receive(map[string]time.Time{name: at})
		mustApply(t, r.conn, change{Cluster: "b", Export: "sample/" + name})
	}
	if n := len(r.firstSeen.saved()["b"]); n > minRetained+4 {
		t.Errorf("%d are stored", n)
	}
	// An update that never ends stores no ages either.
	for i := range 5000 {
		e := exportWithOffer(fmt.Sprintf("f%d", i), func(o *mcs.Offer) { o.Created = at })
		u := update{Version: 1, More: true, Changes: []change{setExport(t, "b", e), {Cluster: "b", Export: exportKey(&e)}}}
		if _, err := r.conn.apply(u); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.firstSeen.saved()["b"]); n > minRetained+4 {
		t.Errorf("%d are stored during an update", n)
	}
	r.now = r.now.Add(time.Hour)
	r.expect(r.receive(map[string]time.Time{"stays": time.Unix(0, 0)}), "stays", at)
}
