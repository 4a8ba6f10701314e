package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReplaceSection(t *testing.T) {
	t.Parallel()
	mark := func(name, text string) string { return beginMark(name) + "\n" + text + "\n" + endMark(name) + "\n" }
	page := []byte("# head\n\n" + mark("a", "old a") + "\n" + mark("b", "old b"))
	tests := []struct{ name, section, keeps, drops string }{
		{name: "existing", section: "a", keeps: "old b", drops: "old a"},
		{name: "last", section: "b", keeps: "old a", drops: "old b"},
		{name: "new", section: "c", keeps: "old b", drops: "no such text"},
	}
	for _, tt := range tests {
		have := string(replaceSection(page, section{name: tt.section, title: "New title"}))
		if !strings.HasPrefix(have, "# head\n") || !strings.Contains(have, tt.keeps) || strings.Contains(have, tt.drops) {
			t.Errorf("%s: page is\n%s", tt.name, have)
		}
		if strings.Count(have, "## New title") != 1 || strings.Count(have, beginMark(tt.section)) != 1 {
			t.Errorf("%s: want exactly one new section:\n%s", tt.name, have)
		}
		again := string(replaceSection([]byte(have), section{name: tt.section, title: "New title"}))
		if d := cmp.Diff(have, again); d != "" {
			t.Errorf("%s: a second time (-want +got):\n%s", tt.name, d)
		}
	}
}

func TestFilled(t *testing.T) {
	t.Parallel()
	word := strings.Repeat("x", 48)
	in := "\n" + word + "\n" + word + " éé\nend\n\nanother paragraph\n\n- x" + word + "\n  " + word + "\n- item\n"
	want := word + " " + word + " éé\nend\n\nanother paragraph\n\n- x" + word + " " + word + "\n- item"
	in, want = in+" "+word+" "+word, want+" "+word+"\n  "+word
	if d := cmp.Diff(want, filled(in)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if again := filled(filled(in)); again != want {
		t.Errorf("a second time:\n%s", again)
	}
}

func TestRow(t *testing.T) {
	t.Parallel()
	tests := []struct {
		row  row
		want string
	}{
		{row{metric: "w", figure: "1", reference: "2", ratio: "0.50"}, "| w | 1 | 2 | 0.50 |  |\n"},
		{row{metric: "w"}.withTarget("1 or better", true), "| w |  |  |  | 1 or better: met |\n"},
		{row{metric: "w"}.withTarget("1 or better", false), "| w |  |  |  | 1 or better: **missed** |\n"},
	}
	for _, tt := range tests {
		if d := cmp.Diff(tt.want, tt.row.String()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

func TestSample(t *testing.T) {
	t.Parallel()
	sample := []int{5, 1, 4, 2, 3}
	if m, p99 := median(sample), quantile(sample, 0.99); m != 3 || p99 != 5 {
		t.Errorf("median %d, p99 %d; want 3, 5", m, p99)
	}
	a := &side{name: "a", once: func() (time.Duration, error) { return 10, nil }}
	b := &side{name: "b", once: func() (time.Duration, error) { return 20, nil }}
	if err := alternate(3, []*side{a, b}); err != nil || len(a.times) != 3 || len(b.times) != 3 {
		t.Fatalf("%d and %d measurements (%v), want 3", len(a.times), len(b.times), err)
	}
	if r := ratio(a.times, b.times); r != 0.5 {
		t.Errorf("ratio %v, want 0.5", r)
	}
	tests := []struct {
		d    time.Duration
		want string
	}{
		{1500 * time.Millisecond, "1.50 s"}, {123456 * time.Microsecond, "123 ms"},
		{1234 * time.Microsecond, "1.2 ms"}, {12 * time.Microsecond, "12 µs"},
	}
	for _, tt := range tests {
		if have := millis(tt.d); have != tt.want {
			t.Errorf("%v is %q, want %q", tt.d, have, tt.want)
		}
	}
}

// TestElements checks the sizes that the page promises.
func TestElements(t *testing.T) {
	t.Parallel()
	s, err := gatewayState()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Elements) != engineElements || len(s.Peers) != enginePeers {
		t.Errorf("%d elements and %d peers, want %d and %d", len(s.Elements), len(s.Peers), engineElements, enginePeers)
	}
	seen := map[string]bool{}
	for _, e := range s.Elements {
		if seen[e.Key()] {
			t.Errorf("element %s twice", e.Key())
		}
		seen[e.Key()] = true
	}
}
