package feed

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/mcs"
)

// ageRig is a gateway that hears a cluster, at an invented time.
type ageRig struct {
	*testing.T
	now  time.Time
	ages *firstSeen
	box  *receiver
}

func newAgeRig(t *testing.T, known map[string]map[string]time.Time) *ageRig {
	r := &ageRig{T: t, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	r.ages = newAges(func() time.Time { return r.now })
	r.ages.restore(known)
	r.connect(Peer{Cluster: "b"})
	return r
}

func (r *ageRig) connect(peer Peer) {
	r.box = &receiver{peer: peer, own: "self", warn: func(why string) { r.Errorf("refused: %s", why) }, ages: r.ages}
}

// say sends exports, and gives since when each counts.
func (r *ageRig) say(kind string, created map[string]time.Time) map[string]time.Time {
	r.Helper()
	u := update{Cluster: "b"}
	for name, at := range created {
		raw, err := json.Marshal(offering(name, func(o *mcs.Offer) { o.Created = at }))
		if err != nil {
			r.Fatal(err)
		}
		u.Exports = append(u.Exports, raw)
	}
	if _, err := r.box.apply(frame{Kind: kind, Clusters: []update{u}}); err != nil {
		r.Fatal(err)
	}
	out := map[string]time.Time{}
	for _, e := range r.box.states["b"].Live.Exports {
		out[e.Name] = e.Offer.Created
	}
	return out
}

func (r *ageRig) want(have map[string]time.Time, name string, want time.Time) {
	r.Helper()
	if !have[name].Equal(want) {
		r.Errorf("%s counts since %v, want %v", name, have[name], want)
	}
}

// TestClaimIsAsOldAsItsFirstSight: a cluster that is heard cannot say later that an
// export is older than that, not by a restart of either end either.
func TestClaimIsAsOldAsItsFirstSight(t *testing.T) {
	t.Parallel()
	r := newAgeRig(t, nil)
	old, ancient := r.now.Add(-time.Hour), time.Unix(0, 0).UTC()
	// Of a cluster that was never heard nothing is known: what it says counts.
	r.want(r.say(kindSnapshot, map[string]time.Time{"first": old}), "first", old)

	r.now = r.now.Add(time.Hour)
	seen := r.now
	have := r.say(kindDelta, map[string]time.Time{"forged": ancient, "fresh": seen.Add(-10 * time.Second), "ahead": seen.Add(time.Minute)})
	r.want(have, "first", old)
	r.want(have, "forged", seen)
	r.want(have, "fresh", seen.Add(-10*time.Second)) // as others will see it, too
	r.want(have, "ahead", seen.Add(time.Minute))

	r.now = r.now.Add(time.Hour)
	r.want(r.say(kindDelta, map[string]time.Time{"first": ancient}), "first", old)
	r.want(r.say(kindDelta, map[string]time.Time{"forged": ancient}), "forged", seen)
	r.connect(Peer{Cluster: "b"}) // another connection
	have = r.say(kindSnapshot, map[string]time.Time{"first": old, "forged": ancient, "second": ancient})
	r.want(have, "first", old)
	r.want(have, "forged", seen)
	r.want(have, "second", r.now)

	// Made anew it is as young as it says.
	r.want(r.say(kindDelta, map[string]time.Time{"first": r.now}), "first", r.now)
	r.want(r.say(kindDelta, map[string]time.Time{"first": old}), "first", r.now)

	raw, err := json.Marshal(r.ages.kept())
	if err != nil {
		t.Fatal(err)
	}
	var kept map[string]map[string]time.Time
	if err := json.Unmarshal(raw, &kept); err != nil {
		t.Fatal(err)
	}
	again := newAgeRig(t, kept)
	again.now = r.now.Add(time.Hour)
	have = again.say(kindSnapshot, map[string]time.Time{"forged": ancient, "third": ancient})
	again.want(have, "forged", seen)
	again.want(have, "third", again.now)
}

// TestAgesFromOwnGateways: nodes, and a gateway that takes over, believe their own
// cluster's gateways.
func TestAgesFromOwnGateways(t *testing.T) {
	t.Parallel()
	r := newAgeRig(t, nil)
	seen := r.now.Add(-time.Minute)
	r.connect(Peer{Cluster: "self", Device: "hw-vx0"})
	r.want(r.say(kindSnapshot, map[string]time.Time{"forged": seen}), "forged", seen)
	r.now = r.now.Add(time.Hour)
	r.want(r.say(kindDelta, map[string]time.Time{"old": seen}), "old", seen)
	r.connect(Peer{Cluster: "b"})
	have := r.say(kindSnapshot, map[string]time.Time{"forged": time.Unix(0, 0), "new": time.Unix(0, 0)})
	r.want(have, "forged", seen)
	r.want(have, "new", r.now)
	// A gateway that lost its memory believes anything; those who have theirs do not.
	r.connect(Peer{Cluster: "self", Device: "hw-vx0"})
	r.want(r.say(kindSnapshot, map[string]time.Time{"forged": time.Unix(0, 0)}), "forged", seen)
}

// TestAgesAreBounded: names that come and go are forgotten, those that stay are not.
func TestAgesAreBounded(t *testing.T) {
	t.Parallel()
	r := newAgeRig(t, nil)
	at := r.now
	r.say(kindSnapshot, map[string]time.Time{"stays": at})
	for i := range 5000 {
		name := fmt.Sprintf("e%d", i)
		r.say(kindDelta, map[string]time.Time{name: at})
		if _, err := r.box.apply(frame{Kind: kindDelta, Clusters: []update{{Cluster: "b", Removed: []string{"sample/" + name}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.ages.kept()["b"]); n > maxGone+4 {
		t.Errorf("%d are remembered", n)
	}
	r.now = r.now.Add(time.Hour)
	r.want(r.say(kindDelta, map[string]time.Time{"stays": time.Unix(0, 0)}), "stays", at)
}
