package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/lab/netnsexec"
)

func TestParseLock(t *testing.T) {
	t.Parallel()
	got := parseLock("# comment: no\nkind: ClusterSetLock\nallocated:\n  clusters[g1].blocks: [242.0.0.0/15]\n  exports[shop/db].clusters[g1].hosts[*-0]: [242.0.0.10]\n")
	if len(got) != 2 || got["clusters[g1].blocks"] != "242.0.0.0/15" || got["exports[shop/db].clusters[g1].hosts[*-0]"] != "242.0.0.10" {
		t.Errorf("%v", got)
	}
}

// TestCheckPods tests that a name without a cluster needs the pods of every cluster.
func TestCheckPods(t *testing.T) {
	t.Parallel()
	clusters := []string{"g1", "g2"}
	got := answers{"g1/caller db-0.g1.db 4": "242.0.0.9", "g1/caller db-0.g2.db 4": "242.2.0.9", "g1/caller db 4": "242.0.0.9"}
	if err := checkPods(got, "g1/caller", 4, clusters); err == nil {
		t.Error("a name without one of its pods counts as complete")
	}
	got["g1/caller db 4"] = "242.2.0.9 242.0.0.9"
	if err := checkPods(got, "g1/caller", 4, clusters); err != nil {
		t.Error(err)
	}
}

func TestAccountIsInOrder(t *testing.T) {
	t.Parallel()
	startedAt := time.Now()
	history := []action{{at: 2 * time.Second, text: "end a"}, {at: time.Second, text: "begin a"}}
	found := []violation{{at: startedAt.Add(1500 * time.Millisecond), sort: safety, text: "leak"}}
	story := account(startedAt, startedAt.Add(3*time.Second), history, found)
	at := -1
	for _, part := range []string{"begin a", "** safety: leak", "end a", "all healed"} {
		next := strings.Index(story, part)
		if next <= at {
			t.Fatalf("%q is missing or too early:\n%s", part, story)
		}
		at = next
	}
}

func TestViolationLogLimitsRepeats(t *testing.T) {
	t.Parallel()
	l := newViolationLog()
	for range 10 {
		l.add(safety, "the same %d", 1)
	}
	l.add(late, "another")
	l.add(noteEntry, "an explanation")
	if got, notes := l.drain(); len(got) != maxSame+1 || len(notes) != 1 {
		t.Errorf("%d violations and %d notes", len(got), len(notes))
	}
	if got, notes := l.drain(); len(got)+len(notes) != 0 {
		t.Errorf("%d entries are left", len(got)+len(notes))
	}
	l.add(safety, "the same 1")
	if got, _ := l.drain(); len(got) != 1 {
		t.Error("a repeat in the next round is not reported")
	}
}

func TestGrown(t *testing.T) {
	t.Parallel()
	a, b := netnsexec.Process{PID: 1, Start: 1}, netnsexec.Process{PID: 2, Start: 1}
	before := map[netnsexec.Process]usage{a: {name: "a", rss: 20 << 20, files: 10}, b: {name: "b", rss: 20 << 20, files: 10}}
	flat := map[netnsexec.Process]usage{a: {name: "a", rss: 40 << 20, files: 20}}
	if got := listGrown(before, flat); len(got) != 0 {
		t.Errorf("flat: %v", got)
	}
	fat := map[netnsexec.Process]usage{a: {name: "a", rss: 43 << 20, files: 43}, b: before[b]}
	if got := listGrown(before, fat); len(got) != 2 {
		t.Errorf("memory and files grew: %v", got)
	}
}

func TestAnonymous(t *testing.T) {
	t.Parallel()
	if got := anonymous("Name:\tx\nVmRSS:\t  99 kB\nRssAnon:\t    12 kB\n"); got != 12<<10 {
		t.Errorf("%d", got)
	}
}

func TestFirstDifference(t *testing.T) {
	t.Parallel()
	if got := firstDifference("a\nb", "a"); got != `line 2 is "", was "b"` {
		t.Error(got)
	}
	if got := firstDifference("a", "a"); got != "nothing" {
		t.Error(got)
	}
}

func TestWithGateway(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/lab/clusterset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	b := chaosLab{options: options{variant: usual}, text: raw}
	text := b.withGateway()
	if strings.Count(text, "- name: g2-d") != 1 || strings.Count(text, "203.0.113.24") != 1 || len(text) <= len(raw) {
		t.Error("no gateway was added")
	}
}
