package feed

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hawser.dev/hawser/nodeagent/model"
)

// updates decodes the frames of updates.
func updates(t *testing.T, frames [][]byte) []update {
	t.Helper()
	var out []update
	stream := bytes.NewReader(bytes.Join(frames, nil))
	for stream.Len() > 0 {
		var u update
		if err := readFrame(stream, maxFrame, &u); err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

// receiverOf returns a receiver for a new connection without earlier states.
func receiverOf(peer Peer, warn func(reason string)) *receiver {
	return newReceiver(peer, "self", nil, warn)
}

func ignore(string) {}

// clusterChange returns the change that publishes a cluster.
func clusterChange(cluster, raw string) change {
	return change{Cluster: cluster, State: json.RawMessage(raw)}
}

// setExport returns the change that sets an export.
func setExport(t testing.TB, cluster string, e model.ExportState) change {
	t.Helper()
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return change{Cluster: cluster, Export: exportKey(&e), State: raw}
}

// setRawExport returns the change that sets the export n/name.
func setRawExport(cluster, name, raw string) change {
	return change{Cluster: cluster, Export: "n/" + name, State: json.RawMessage(raw)}
}

// mustApply applies an update of one frame.
func mustApply(t testing.TB, r *receiver, changes ...change) {
	t.Helper()
	if _, err := r.apply(update{Version: r.version + 1, Changes: changes}); err != nil {
		t.Fatal(err)
	}
}

// applyFrame decodes and applies one frame.
func applyFrame(t testing.TB, r *receiver, raw []byte) {
	t.Helper()
	var u update
	if err := readFrame(bytes.NewReader(raw), maxFrame, &u); err != nil {
		t.Fatal(err)
	}
	if _, err := r.apply(u); err != nil {
		t.Fatal(err)
	}
}

func randomStates(random *rand.Rand) map[string]RemoteState {
	view := map[string]RemoteState{}
	for c := range 4 {
		if random.IntN(4) == 0 {
			continue
		}
		cluster := fmt.Sprintf("c%d", c)
		state := stateOf(cluster)
		for e := range 6 {
			if random.IntN(2) == 0 {
				state.Exports = append(state.Exports, model.ExportState{Namespace: "n", Name: fmt.Sprintf("e%d", e), Ready: random.IntN(2) == 0})
			}
		}
		view[cluster] = RemoteState{State: state, Stale: random.IntN(5) == 0}
	}
	return view
}

// TestMissedVersions checks that a subscriber that skips versions has the state of the last one.
func TestMissedVersions(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 3))
		p := newPublication()
		r := receiverOf(Peer{Device: "hw-vx0"}, func(reason string) { t.Errorf("refused: %s", reason) })
		var position cursor
		for range 20 {
			states := randomStates(random)
			publishStates(t, p, states)
			if random.IntN(3) == 0 {
				continue // missed
			}
			receive(t, p, &position, r)
			d := cmp.Diff(states, r.states, byValue, cmpopts.EquateEmpty())
			if d != "" {
				t.Fatalf("seed %d (-want +got):\n%s", seed, d)
			}
		}
		if limit := 10 * (clusterCost + 6*exportCost); r.size < 0 || r.size > limit {
			t.Fatalf("seed %d: the size is %d, the limit %d", seed, r.size, limit)
		}
	}
}

// receive applies the update from the subscriber's version to the current one.
func receive(t *testing.T, p *publication, position *cursor, r *receiver) {
	t.Helper()
	if err := position.check(poll{Version: r.version}); err != nil {
		t.Fatal(err)
	}
	current, _ := p.load()
	frames, err := position.advance(current)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range updates(t, frames) {
		if _, err := r.apply(u); err != nil {
			t.Fatal(err)
		}
	}
}

func publishStates(t testing.TB, p *publication, view map[string]RemoteState) {
	t.Helper()
	if err := p.publish(view); err != nil {
		t.Fatal(err)
	}
}

// TestPartialUpdate checks that a part of an update has no effect, neither in the first update of a
// connection nor in a later one.
func TestPartialUpdate(t *testing.T) {
	t.Parallel()
	r := newReceiver(Peer{Cluster: "b"}, "a", nil, ignore)
	for version, steps := range [][2]struct {
		changes []change
		want    int // exports
	}{
		{{[]change{clusterChange("b", "{}"), setExport(t, "b", ready("one"))}, 0}, {[]change{setExport(t, "b", ready("two"))}, 2}},
		{{[]change{setExport(t, "b", ready("three"))}, 2}, {[]change{{Cluster: "b", Export: "sample/one"}, setExport(t, "b", ready("four"))}, 3}},
	} {
		for i, step := range steps {
			u := update{Version: uint64(version + 1), Changes: step.changes, More: i == 0}
			if changed, err := r.apply(u); changed == u.More || err != nil {
				t.Fatalf("version %d, frame %d: changed %v, %v", version+1, i, changed, err)
			}
			if n := len(r.states["b"].State.Exports); n != step.want {
				t.Errorf("version %d, frame %d: %d exports, want %d", version+1, i, n, step.want)
			}
		}
		if r.version != uint64(version+1) {
			t.Errorf("the next poll names version %d, want %d", r.version, version+1)
		}
	}
}

func TestInvalidUpdates(t *testing.T) {
	t.Parallel()
	if _, err := receiverOf(Peer{Cluster: "b"}, ignore).apply(update{}); err == nil {
		t.Error("an update without a version was accepted")
	}
	tests := map[string][]change{
		"export without its cluster": {setExport(t, "b", ready("one"))},
		"export of the wrong type": {
			clusterChange("b", "{}"), setRawExport("b", "e", "3"),
		},
		"export with two names":     {clusterChange("b", "{}"), setRawExport("b", "e", `{"namespace":"n","name":"f"}`)},
		"cluster of the wrong type": {clusterChange("b", "3")},
		"invalid shape":             {clusterChange("b", `{"shape":"<"}`)},
		"links of the wrong type":   {clusterChange("b", `{"transit":3}`)},
	}
	for name, changes := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := receiverOf(Peer{Cluster: "b"}, ignore)
			if _, err := r.apply(update{Version: 1, Changes: changes}); err == nil {
				t.Error("the update was accepted")
			}
		})
	}
}

// Not parallel: allocations of other tests would count.
func TestReadFrameRefusesBeforeItAllocates(t *testing.T) {
	raw := binary.BigEndian.AppendUint32(nil, 1<<31)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := readFrame(bytes.NewReader(raw), maxFrame, new(update)); err == nil {
		t.Error("a frame of 2 GiB was accepted")
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes allocated for a refused frame", grown)
	}
}

func FuzzReadFrame(f *testing.F) {
	for _, u := range []update{
		{Version: 1},
		{Version: 1, Changes: []change{clusterChange("b", "{}"), setRawExport("b", "e", `{"namespace":"n","name":"e","ready":true,"hosts":[{"ips":["242.2.0.5"]}]}`)}},
		{Version: 2, More: true, Changes: []change{clusterChange("b", "{}"), {Cluster: "b", Export: "n/e"}, {Cluster: "b"}}},
		{Version: 1, Changes: []change{
			clusterChange("b", `{"shape":"0a","transit":{"edges":[{"cluster":"c","rank":1,"mtu":1280}]}}`),
			setRawExport("b", "e", `{"namespace":"n","name":"e","families":[4],"hosts":[{"name":"a","ips":["::1"],"ports":{"TCP/80":81}}],`+
				`"offer":{"created":"2026-01-02T03:04:05Z","ports":[{"name":"http","protocol":"TCP","port":80,"appProtocol":"k8s.io/x"}],`+
				`"families":[4,6],"addrs":["242.2.0.9"],"labels":{"a/b":"c"},"annotations":{"d":"<"}}}`),
		}},
	} {
		raw, err := encodeFrame(u)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		stream := bytes.NewReader(raw)
		r := receiverOf(Peer{Cluster: "b"}, ignore)
		for {
			var u update
			if readFrame(stream, maxFrame, &u) != nil {
				return
			}
			if _, err := r.apply(u); err != nil {
				return
			}
			for cluster, state := range r.states {
				if cluster != "b" || state.State.Cluster != "b" {
					t.Fatalf("b published %q", cluster)
				}
			}
			if d := cmp.Diff(r.states, relayed(t, r.states), byValue, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("(-gateway +node):\n%s", d)
			}
		}
	})
}
