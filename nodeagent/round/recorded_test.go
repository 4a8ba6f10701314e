package round_test

import (
	"context"
	"flag"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/nodeagent/round/roundtest"
)

// recordings returns the recordings in testdata by name. During the recordings chaos-*, make chaos
// injected faults into the lab.
func recordings(t *testing.T) map[string]roundtest.Recording {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	out := map[string]roundtest.Recording{}
	for _, file := range files {
		r, err := roundtest.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(file), ".json.gz")] = r
	}
	return out
}

// TestPlanIsRun replays recordings. In each round, hawser-agent plan computes the same desired
// state, moves and announcements as the agent, and the same next state.
func TestPlanIsRun(t *testing.T) {
	t.Parallel()
	var all counts
	for name, r := range recordings(t) {
		n := newNode(t, r)
		c := n.replay(t, func(i int, m roundtest.Moment, before round.State, p *parts, have outcome) {
			if d := differ(t, have, n.plan(t, before, m, p, m.At)); d != "" && !t.Failed() {
				t.Errorf("%s, round %d: plan and run differ (-run +plan)\n%s", name, i, d)
			}
		})
		t.Logf("%s: %+v", name, c)
		all.add(c)
	}
	if all.rounds < 400 || all.moves < 100 || all.aims < 20 || all.left < 10 || all.retained < 40 || all.live < 5 {
		t.Errorf("too few events in the recordings: %+v", all)
	}
}

// Flags of TestRecord.
var (
	recordLab   = flag.String("record", "", "directory of a lab (hawser lab); records its agents into testdata")
	recordNodes = flag.String("nodes", "", "with -record: names of nodes, separated by commas")
	recordFor   = flag.Duration("for", time.Minute, "with -record: duration")
)

// TestRecord records the observations of the agents of a lab while faults are injected. It does not
// record keys.
func TestRecord(t *testing.T) {
	if *recordLab == "" {
		t.Skip("needs -record")
	}
	for name := range strings.SplitSeq(*recordNodes, ",") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), *recordFor)
			defer cancel()
			r, err := roundtest.Record(ctx, filepath.Join(*recordLab, "nodes", name))
			if err == nil {
				err = r.Write(filepath.Join("testdata", name+".json.gz"))
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d moments, %d fabrics", len(r.Moments), len(r.Fabrics))
		})
	}
}
