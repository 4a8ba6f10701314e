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
	var list []faultRun
	for _, fault := range faultCases() {
		for i, stall := range []time.Duration{400, 500, 1100} {
			list = append(list, faultRun{Fault: fault.name, Rep: i, Stall: stall * time.Millisecond, Lost: i,
				Moved: map[string]time.Duration{"n": 300 * time.Millisecond}})
		}
	}
	list[0].Err, list[0].Victim = "rest: s1/x is not ready", "s1/x"
	page := stallSection(p, 3, list).String()
	for _, want := range []string{
		"| " + faultCases()[0].name + " | 500 ms | 1.10 s | 1.10 s | 1 | 2 | 0 | 0 | 0 | 0 µs | 0 µs | 300 ms | 300 ms | **missed** |",
		"1 of 21 did not recover", "repetition 1, s1/x: rest: s1/x is not ready",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	list[0].Err = ""
	if page := stallSection(p, 3, list).String(); !strings.Contains(page, "All 21 recovered, and the links settled.") {
		t.Errorf("the page does not report that all recovered:\n%s", page)
	}
}

func TestWithReplacements(t *testing.T) {
	t.Parallel()
	for _, words := range []string{"interval: 250ms", "egress: auto"} {
		file, err := withReplacements("testdata/three/clusterset.yaml", map[string]string{words: "other words"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { remove(t, file) })
		raw, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(raw), words) || !strings.Contains(string(raw), "other words") {
			t.Errorf("%v, %s", err, raw)
		}
	}
	if _, err := withReplacements("testdata/three/clusterset.yaml", map[string]string{"nodes": "x"}); err == nil {
		t.Error("no error for words that the file does not contain")
	}
}

func TestLease(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	after := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	l := &lease{holder: "a", renewed: start, dead: map[string]bool{}}
	a, b := &elector{lease: l, name: "a"}, &elector{lease: l, name: "b"}
	steps := []struct {
		at     float64
		dead   bool // a
		active bool // b becomes active in this round
		holder string
	}{
		{1, false, false, "a"}, {3, false, false, "a"}, {17, false, false, "a"}, // a renews each time
		{18, true, false, "a"}, {31, true, false, "a"}, {32.5, true, true, "b"}, // b saw a's last renewal at 17
		{33, false, false, "b"}, {60, false, false, "b"}, // a runs again, and stays passive
	}
	for _, step := range steps {
		l.setDead("a", step.dead)
		a.try(after(step.at))
		if active := b.try(after(step.at)); active != step.active || l.active() != step.holder {
			t.Errorf("after %v s: b became active %v, the holder is %s; want %v, %s", step.at, active, l.active(), step.active, step.holder)
		}
	}
}

func TestShare(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		part, whole int
		want        string
	}{{5, 5, "100 %"}, {9999, 10000, "99.9 %"}, {1, 3, "33.3 %"}, {0, 7, "0 %"}, {0, 0, "none"}} {
		if have := share(tt.part, tt.whole); have != tt.want {
			t.Errorf("%d of %d is %q, want %q", tt.part, tt.whole, have, tt.want)
		}
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Error(err)
	}
}
