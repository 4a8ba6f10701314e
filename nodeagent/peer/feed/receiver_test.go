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

// unpack turns the bytes of frames back into frames.
func unpack(t *testing.T, raw [][]byte) []frame {
	t.Helper()
	var out []frame
	stream := bytes.NewReader(bytes.Join(raw, nil))
	for stream.Len() > 0 {
		var f frame
		if err := readFrame(stream, maxFrame, &f); err != nil {
			t.Fatal(err)
		}
		out = append(out, f)
	}
	return out
}

func randomView(r *rand.Rand) map[string]RemoteState {
	view := map[string]RemoteState{}
	for c := range 4 {
		if r.IntN(4) == 0 {
			continue
		}
		cluster := fmt.Sprintf("c%d", c)
		state := live(cluster)
		for e := range 6 {
			if r.IntN(2) == 0 {
				state.Exports = append(state.Exports, model.ExportState{Namespace: "n", Name: fmt.Sprintf("e%d", e), Ready: r.IntN(2) == 0})
			}
		}
		view[cluster] = RemoteState{Live: state, Stale: r.IntN(5) == 0}
	}
	return view
}

// TestDeltasAddUp: whatever editions a subscriber misses, it arrives at the last.
func TestDeltasAddUp(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 3))
		topic := newTopic()
		box := &receiver{peer: Peer{Device: "hw-vx0"}, own: "self", warn: func(why string) { t.Errorf("refused: %s", why) }}
		var sent *version
		for range 20 {
			view := randomView(r)
			if err := topic.publish(view); err != nil {
				t.Fatal(err)
			}
			if r.IntN(3) == 0 {
				continue // missed
			}
			current, _ := topic.load()
			raw, err := current.framesSince(sent)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range unpack(t, raw) {
				if _, err := box.apply(f); err != nil {
					t.Fatal(err)
				}
			}
			sent = current
			want := view
			if len(want) == 0 {
				want = nil
			}
			if len(box.states) == 0 {
				box.states = nil
			}
			if d := cmp.Diff(want, box.states, byValue); d != "" {
				t.Fatalf("seed %d (-want +got):\n%s", seed, d)
			}
		}
		if box.size < 0 || box.size > 10000 {
			t.Fatalf("seed %d: the size came to %d", seed, box.size)
		}
	}
}

func export(t *testing.T, e model.ExportState) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestInboxHoldsBackUnfinishedChanges(t *testing.T) {
	t.Parallel()
	box := &receiver{peer: Peer{Cluster: "b"}, warn: func(string) {}}
	one, two := export(t, ready("one")), export(t, ready("two"))
	half := frame{Kind: kindSnapshot, More: true, Clusters: []update{{Cluster: "b", Exports: []json.RawMessage{one}}}}
	if changed, err := box.apply(half); changed || err != nil || box.complete {
		t.Fatalf("half a snapshot counts: %v, %v", changed, err)
	}
	rest := frame{Kind: kindDelta, Clusters: []update{{Cluster: "b", Exports: []json.RawMessage{two}}}}
	if changed, err := box.apply(rest); !changed || err != nil || !box.complete {
		t.Fatalf("a whole snapshot does not count: %v, %v", changed, err)
	}
	if n := len(box.states["b"].Live.Exports); n != 2 {
		t.Errorf("%d exports, want 2", n)
	}
}

func TestInboxRefuses(t *testing.T) {
	t.Parallel()
	begun := frame{Kind: kindSnapshot}
	tests := []struct {
		name   string
		frames []frame
	}{
		{"delta first", []frame{{Kind: kindDelta}}},
		{"unknown kind", []frame{begun, {Kind: "other"}}},
		{"not an export", []frame{begun, {Kind: kindDelta, Clusters: []update{{Cluster: "b", Exports: []json.RawMessage{[]byte("3")}}}}}},
		{"no shape", []frame{begun, {Kind: kindDelta, Clusters: []update{{Cluster: "b", Shape: "<"}}}}},
		{"no links", []frame{begun, {Kind: kindDelta, Clusters: []update{{Cluster: "b", Transit: []byte("3")}}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			box := &receiver{peer: Peer{Cluster: "b"}, warn: func(string) {}}
			var err error
			for _, f := range tt.frames {
				_, err = box.apply(f)
			}
			if err == nil {
				t.Error("it was taken")
			}
		})
	}
}

// Not parallel: what other tests allocate would count.
func TestReadFrameRefusesBeforeItAllocates(t *testing.T) {
	raw := binary.BigEndian.AppendUint32(nil, 1<<31)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := readFrame(bytes.NewReader(raw), maxFrame, new(frame)); err == nil {
		t.Error("a frame of 2 GiB was taken")
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes for a frame that is refused", grown)
	}
}

func FuzzReadFrame(f *testing.F) {
	one := json.RawMessage(`{"namespace":"n","name":"e","ready":true,"hosts":[{"ips":["242.2.0.5"]}]}`)
	for _, content := range []frame{
		{Kind: kindHeartbeat},
		{Kind: kindSnapshot, Clusters: []update{{Cluster: "b", Exports: []json.RawMessage{one}}}},
		{Kind: kindDelta, More: true, Clusters: []update{{Cluster: "b", Removed: []string{"n/e"}}, {Cluster: "b", Gone: true}}},
		{Kind: kindSnapshot, Clusters: []update{{
			Cluster: "b", Shape: "0a", Transit: json.RawMessage(`{"edges":[{"cluster":"c","rank":1,"mtu":1280}]}`),
			Exports: []json.RawMessage{json.RawMessage(`{"namespace":"n","name":"e","families":[4],"hosts":[{"name":"a","ips":["::1"],"ports":{"TCP/80":81}}],` +
				`"offer":{"created":"2026-01-02T03:04:05Z","ports":[{"name":"http","protocol":"TCP","port":80,"appProtocol":"k8s.io/x"}],` +
				`"families":[4,6],"addrs":["242.2.0.9"],"labels":{"a/b":"c"},"annotations":{"d":"<"}}}`)},
		}}},
	} {
		raw, err := pack(content)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		stream := bytes.NewReader(raw)
		box := &receiver{peer: Peer{Cluster: "b"}, warn: func(string) {}}
		for {
			var content frame
			if readFrame(stream, maxFrame, &content) != nil {
				return
			}
			if _, err := box.apply(content); err != nil {
				return
			}
			for cluster, heard := range box.states {
				if cluster != "b" || heard.Live.Cluster != "b" {
					t.Fatalf("b spoke for %q", cluster)
				}
			}
			if d := cmp.Diff(box.states, passOn(t, box.states), byValue, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("(-gateway +node):\n%s", d)
			}
		}
	})
}
