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

// recordings gives those of testdata by name. The agents of chaos-* were recorded while
// make chaos broke their lab.
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

// TestPlanIsRun: in each round of recorded runs, a dry run beside the agent comes to the
// same desired state, moves and announcements, and would leave the same state.
func TestPlanIsRun(t *testing.T) {
	t.Parallel()
	var all counts
	for name, r := range recordings(t) {
		n := newNode(t, r)
		c := n.replay(t, func(i int, m roundtest.Moment, before round.State, p *parts, have outcome) {
			if d := differ(t, have, n.beside(t, before, m, p, m.At)); d != "" && !t.Failed() {
				t.Errorf("%s, round %d: the plan is another one than the run (-run +plan)\n%s", name, i, d)
			}
		})
		t.Logf("%s: %+v", name, c)
		all.add(c)
	}
	if all.rounds < 400 || all.moves < 100 || all.aims < 20 || all.left < 10 || all.kept < 40 || all.live < 5 {
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
