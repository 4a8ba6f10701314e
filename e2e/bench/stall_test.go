package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMovesIn(t *testing.T) {
	t.Parallel()
	raw := `time=2026-11-21T19:12:00.146Z level=INFO msg="feed connected" cluster=s2 gateway=s2-c
time=2026-11-21T19:12:01.250Z level=INFO msg=moved cluster=s2 from="s1-a to s2-c" to="s1-b to s2-c" cause="link \"s1-a\" is down"
not a line of the log
time=2026-11-21T19:12:02Z level=INFO msg=moved cluster=s3
`
	at := func(text string) time.Time {
		out, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := []move{{at: at("2026-11-21T19:12:01.250Z"), cluster: "s2"}, {at: at("2026-11-21T19:12:02Z"), cluster: "s3"}}
	if d := cmp.Diff(want, movesIn([]byte(raw)), cmp.AllowUnexported(move{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestMovedBetween(t *testing.T) {
	t.Parallel()
	hit := time.Unix(1000, 500_000)
	after := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	all := []move{
		{node: "early", at: after(-1)}, {node: "late", at: after(901)},
		{node: "a", at: after(700)}, {node: "a", at: after(650)}, {node: "a", at: after(-5)}, {node: "b", at: after(0)},
	}
	want := map[string]time.Duration{"a": 650 * time.Millisecond, "b": 0}
	if d := cmp.Diff(want, movedBetween(all, hit, after(900))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestStallSection(t *testing.T) {
	t.Parallel()
	p := profiles()[0]
	var list []repetition
	for _, trouble := range troubles() {
		for i, stall := range []time.Duration{400, 500, 1100} {
			list = append(list, repetition{Trouble: trouble.name, Rep: i, Stall: stall * time.Millisecond, Lost: i,
				Moved: map[string]time.Duration{"n": 300 * time.Millisecond}})
		}
	}
	list[0].Err, list[0].Victim = "rest: s1/x is not ready", "s1/x"
	page := stallSection(p, 3, list).String()
	for _, want := range []string{
		"| " + troubles()[0].name + " | 500 ms | 1.10 s | 1.10 s | 1 | 2 | 0 | 0 | 0 | 0 µs | 0 µs | 300 ms | 300 ms | **missed** |",
		"1 of 21 did not come back", "repetition 1, s1/x: rest: s1/x is not ready",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	list[0].Err = ""
	if page := stallSection(p, 3, list).String(); !strings.Contains(page, "All 21 came back and to rest.") {
		t.Errorf("page does not say that all went well:\n%s", page)
	}
}

func TestAgreesWithTopology(t *testing.T) {
	t.Parallel()
	file, err := withInterval("testdata/three/clusterset.yaml", 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, file) })
	if _, err := withInterval("testdata/lab/clusterset.yaml", time.Second); err == nil {
		t.Error("a topology without the line is taken")
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Error(err)
	}
}
