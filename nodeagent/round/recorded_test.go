package round_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/control"
	"hawser.dev/hawser/nodeagent/facts"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/schema/fabric"
)

func readRecordings(t *testing.T) map[string]recording {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	out := map[string]recording{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		unpacked, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = io.ReadAll(unpacked); err != nil {
			t.Fatal(err)
		}
		var r recording
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[strings.TrimSuffix(filepath.Base(file), ".json.gz")] = r
	}
	return out
}

// TestPlanIsRun: in each round of recorded runs, a dry run beside the agent comes to the
// same desired state, moves and announcements, and would leave the same state.
func TestPlanIsRun(t *testing.T) {
	t.Parallel()
	var all counts
	for name, r := range readRecordings(t) {
		n := newNode(t, r)
		c := n.replay(t, func(i int, m moment, before round.State, p *parts, have outcome) {
			if d := differ(t, have, n.beside(t, before, m, p, m.At)); d != "" && !t.Failed() {
				t.Errorf("%s, round %d: the plan is another one than the run (-run +plan)\n%s", name, i, d)
			}
		})
		t.Logf("%s: %+v", name, c)
		all.add(c)
	}
	if all.rounds < 60 || all.moves < 10 || all.aims < 5 || all.left < 5 {
		t.Errorf("too little happens in the recordings: %+v", all)
	}
}

// Where and for how long TestRecord records.
var (
	recordLab   = flag.String("record", "", "folder of a lab (hawser lab) whose agents are recorded into testdata")
	recordNodes = flag.String("nodes", "", "with -record: names of nodes, separated by commas")
	recordFor   = flag.Duration("for", time.Minute, "with -record: how long")
)

// TestRecord asks agents of a lab again and again what they see, while somebody does
// things to the lab, and writes that down. Keys stay where they are.
func TestRecord(t *testing.T) {
	if *recordLab == "" {
		t.Skip("nothing is recorded without -record")
	}
	for name := range strings.SplitSeq(*recordNodes, ",") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record(t, filepath.Join(*recordLab, "nodes", name), name)
		})
	}
}

func record(t *testing.T, dir, name string) {
	t.Helper()
	cluster, _, _ := strings.Cut(name, "-")
	r := recording{Cluster: cluster, Node: name, Fabrics: map[string][]byte{}, Kept: round.KeptLive{}}

	var last []byte
	for end := time.Now().Add(*recordFor); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var sight struct {
			Peers    round.Peers             `json:"peers"`
			Resolved map[string][]netip.Addr `json:"resolved"`
		}
		runs, err := control.Ask(t.Context(), filepath.Join(dir, "run", "agent.sock"), "/sight", &sight)
		packed, errFabric := os.ReadFile(filepath.Join(dir, "fabric", "fabric.json.gz"))
		if err != nil || !runs || errFabric != nil {
			continue // it restarts
		}
		_, digest, err := fabric.Decode(packed)
		if err != nil {
			continue
		}
		r.Fabrics[digest] = packed
		sight.Peers.Aim = nil
		m := moment{Fabric: digest, Facts: facts.Open(filepath.Join(dir, "facts")).Current().Facts, Resolved: sight.Resolved, Peers: sight.Peers}
		for i := range m.Peers.Links.Links {
			l := &m.Peers.Links.Links[i]
			l.RTT, l.LeastRTT, l.Answered, l.Loss = nil, 0, time.Time{}, 0 // decide nothing, and always change
		}
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(raw, last) {
			last, m.At = raw, time.Now().UTC()
			r.Moments = append(r.Moments, m)
		}
	}
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata", name+".json.gz"), packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d moments, %d fabrics, %d bytes", len(r.Moments), len(r.Fabrics), packed.Len())
}
