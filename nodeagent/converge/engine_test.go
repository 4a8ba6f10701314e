package converge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/converge/convergetest"
)

// state is a desired state of two kinds; the second depends on the first.
type state struct {
	Lower, Upper []item
	Decommission bool
}

type testEngine struct {
	lower, upper *convergetest.World[item]
	engine       *converge.Engine[state]
}

func newTestEngine() *testEngine {
	r := &testEngine{lower: convergetest.NewWorld[item](), upper: convergetest.NewWorld[item]()}
	origin := func(i item) string { return i.Origin }
	r.engine = &converge.Engine[state]{
		Stages: []converge.Stage[state]{
			converge.NewStage(r.lower.Kind("lower"), func(s state) []item { return s.Lower }, origin),
			converge.NewStage(r.upper.VersionedKind("upper"), func(s state) []item { return s.Upper }, origin),
		},
		Decommission: func(s state) bool { return s.Decommission },
	}
	return r
}

func items(names ...string) []item {
	out := make([]item, len(names))
	for i, n := range names {
		out[i] = item{Name: n, Text: "t", Origin: "things[" + n + "]"}
	}
	return out
}

func keys(w *convergetest.World[item]) []string {
	var out []string
	for _, i := range w.Objects() {
		out = append(out, i.Name)
	}
	return out
}

func texts[T fmt.Stringer](list []T) []string {
	out := []string{}
	for _, x := range list {
		out = append(out, x.String())
	}
	return out
}

func TestOrder(t *testing.T) {
	t.Parallel()
	r := newTestEngine()
	var order []string
	for name, w := range map[string]*convergetest.World[item]{"lower": r.lower, "upper": r.upper} {
		w.Fault = func(c diff.Change[item]) error {
			order = append(order, string(c.Op)+name+" "+c.Key)
			return nil
		}
	}
	r.engine.Once(t.Context(), state{Lower: items("a", "b"), Upper: items("u")}, "1")
	r.engine.Once(t.Context(), state{Lower: items("b", "c"), Upper: items("v")}, "2")
	want := []string{"+lower a", "+lower b", "+upper u", "+lower c", "+upper v", "-upper u", "-lower a"}
	if d := cmp.Diff(want, order); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
}

func TestPlanIsWhatOnceDoes(t *testing.T) {
	t.Parallel()
	r := newTestEngine()
	r.lower.Put(item{Name: "a", Text: "was"})
	r.lower.Put(item{Name: "b", Text: "t", Shape: "round"})
	r.lower.Put(item{Name: "old", Text: "x"})
	r.upper.Put(item{Name: "gone"})
	want := state{Lower: items("a", "b", "c"), Upper: items("u")}
	plan, err := r.engine.Plan(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.lower.Calls())+len(r.upper.Calls()) > 0 {
		t.Errorf("plan changed something: %v %v", r.lower.Calls(), r.upper.Calls())
	}
	lines := []string{
		"~ lower a text: was -> t",
		"± lower b shape: round -> none (forces replacement)",
		"+ lower c text: t, token: (sensitive)",
		"+ upper u text: t, token: (sensitive)",
		"- upper gone token: (sensitive)",
		"- lower old text: x, token: (sensitive)",
	}
	if d := cmp.Diff(lines, texts(plan)); d != "" {
		t.Errorf("plan (-want +got):\n%s", d)
	}
	if plan[0].Origin != "things[a]" {
		t.Errorf("origin %q, want things[a]", plan[0].Origin)
	}
	report := r.engine.Once(t.Context(), want, "")
	if d := cmp.Diff(plan, report.Changed); d != "" {
		t.Errorf("changes differ from the plan (-want +got):\n%s", d)
	}
}

func TestOneFailureStopsNothingElse(t *testing.T) {
	t.Parallel()
	r := newTestEngine()
	broken := errors.New("no")
	r.lower.Fault = func(c diff.Change[item]) error {
		switch c.Key {
		case "a":
			return broken
		case "w":
			return converge.ErrBlocked{On: "link x"}
		}
		return nil
	}
	report := r.engine.Once(t.Context(), state{Lower: items("a", "b", "w"), Upper: items("u")}, "1")
	if d := cmp.Diff([]string{"b", "u"}, append(keys(r.lower), keys(r.upper)...)); d != "" {
		t.Errorf("objects (-want +got):\n%s", d)
	}
	if len(report.Failed) != 1 || report.Failed[0].Key != "a" || !errors.Is(report.Err(), broken) {
		t.Errorf("failed %v", report.Failed)
	}
	if len(report.Blocked) != 1 || report.Blocked[0].Error() != "lower w: waits for link x" {
		t.Errorf("blocked %v", report.Blocked)
	}
	// The second pass makes no progress, so there is no third.
	if report.Passes != 2 {
		t.Errorf("%d passes, want 2", report.Passes)
	}
}

func TestProgressRunsAgain(t *testing.T) {
	t.Parallel()
	r := newTestEngine()
	r.lower.Put(item{Name: "old"})
	// Two objects of the same sort collide: the new one can be created only after the old one
	// is removed.
	r.lower.Fault = func(c diff.Change[item]) error {
		if c.Op == diff.Create && slices.Contains(keys(r.lower), "old") {
			return errors.New("taken")
		}
		return nil
	}
	report := r.engine.Once(t.Context(), state{Lower: items("new"), Upper: items("u")}, "1")
	if !report.Clean() || report.Passes != 2 {
		t.Errorf("passes %d, failed %v", report.Passes, report.Failed)
	}
}

func TestMassDelete(t *testing.T) {
	t.Parallel()
	r := newTestEngine()
	r.engine.Once(t.Context(), state{Lower: items("a"), Upper: items("u")}, "1")
	for range 2 {
		report := r.engine.Once(t.Context(), state{}, "2")
		if !errors.Is(report.Err(), converge.ErrMassDelete) {
			t.Errorf("error %v, want %v", report.Err(), converge.ErrMassDelete)
		}
		if _, err := r.engine.Plan(t.Context(), state{}); !errors.Is(err, converge.ErrMassDelete) {
			t.Errorf("plan error %v, want %v", err, converge.ErrMassDelete)
		}
		if d := cmp.Diff([]string{"a", "u"}, append(keys(r.lower), keys(r.upper)...)); d != "" {
			t.Errorf("objects (-want +got):\n%s", d)
		}
	}
	report := r.engine.Once(t.Context(), state{Decommission: true}, "3")
	if !report.Clean() || len(keys(r.lower))+len(keys(r.upper)) > 0 {
		t.Errorf("decommission left %v %v: %v", keys(r.lower), keys(r.upper), report.Failed)
	}
}

func TestDrift(t *testing.T) {
	t.Parallel()
	r := newTestEngine()
	want := state{Lower: items("a", "b"), Upper: items("u")}
	tests := []struct {
		name   string
		digest string
		tamper func()
		want   state
		drift  map[string]int
	}{
		{name: "first", digest: "1", want: want, drift: map[string]int{}},
		{name: "nothing", digest: "1", want: want, drift: map[string]int{}},
		{name: "removed", digest: "1", want: want, drift: map[string]int{"lower": 1}, tamper: func() { r.lower.Remove("a") }},
		{name: "both", digest: "1", want: want, drift: map[string]int{"lower": 1, "upper": 1}, tamper: func() {
			r.lower.Put(item{Name: "stranger"})
			r.upper.Remove("u")
		}},
		{name: "wanted", digest: "2", want: state{Lower: items("a"), Upper: items("u")}, drift: map[string]int{}},
	}
	for _, tt := range tests {
		if tt.tamper != nil {
			tt.tamper()
		}
		report := r.engine.Once(t.Context(), tt.want, tt.digest)
		if d := cmp.Diff(tt.drift, report.Drift); d != "" {
			t.Errorf("%s: drift (-want +got):\n%s", tt.name, d)
		}
		if !report.Clean() {
			t.Errorf("%s: failed %v", tt.name, report.Failed)
		}
	}
}

func TestUnchangedVersionIsNotReadAgain(t *testing.T) {
	t.Parallel()
	r := newTestEngine()
	want := state{Lower: items("a"), Upper: items("u")}
	r.engine.Once(t.Context(), want, "1")
	r.engine.Once(t.Context(), want, "1")
	before := r.upper.Observed()
	r.engine.Once(t.Context(), want, "1")
	r.engine.Once(t.Context(), state{Lower: items("a"), Upper: items("u", "v")}, "2")
	if reads := r.upper.Observed() - before; reads != 0 {
		t.Errorf("read %d times although nothing changed", reads)
	}
	r.upper.Remove("u")
	r.engine.Once(t.Context(), state{Lower: items("a"), Upper: items("u", "v")}, "2")
	if d := cmp.Diff([]string{"u", "v"}, keys(r.upper)); d != "" {
		t.Errorf("a tampered object is not repaired (-want +got):\n%s", d)
	}
}

func TestErrorOfAWholeCall(t *testing.T) {
	t.Parallel()
	broken := errors.New("no")
	tests := []struct {
		name   string
		err    error
		failed []string
		made   int
	}{
		{name: "nothing", made: 2},
		{name: "one key", err: converge.KeyError{Key: "a", Err: broken}, failed: []string{"kind a: no"}, made: 1},
		{name: "wrapped key", err: fmt.Errorf("batch: %w", converge.KeyError{Key: "a", Err: broken}), failed: []string{"kind a: no"}, made: 1},
		{name: "whole call", err: fmt.Errorf("%w: %w", broken, io.EOF), failed: []string{"kind: no: EOF"}},
		{name: "both", err: errors.Join(converge.KeyError{Key: "a", Err: broken}, io.EOF), failed: []string{"kind a: no", "kind: EOF"}},
	}
	for _, tt := range tests {
		kind := failing{tt.err}
		e := converge.Engine[[]item]{Stages: []converge.Stage[[]item]{
			converge.NewStage(kind, func(i []item) []item { return i }, nil),
		}}
		report := e.Once(t.Context(), items("a", "b"), "")
		var failed []string
		for _, p := range report.Failed {
			failed = append(failed, p.Error())
		}
		if d := cmp.Diff(tt.failed, failed); d != "" {
			t.Errorf("%s: failed (-want +got):\n%s", tt.name, d)
		}
		if made := len(report.Changed) / report.Passes; made != tt.made {
			t.Errorf("%s: %d changes a pass, want %d", tt.name, made, tt.made)
		}
	}
}

// failing is a kind without objects whose Apply returns an error.
type failing struct{ err error }

func (failing) Name() string                            { return "kind" }
func (failing) Observe(context.Context) ([]item, error) { return nil, nil }
func (f failing) Apply(context.Context, []diff.Change[item]) error {
	return f.err
}

func TestStateIsUntouched(t *testing.T) {
	t.Parallel()
	want := state{Lower: items("b", "a")}
	newTestEngine().engine.Once(t.Context(), want, "1")
	if d := cmp.Diff(items("b", "a"), want.Lower); d != "" {
		t.Errorf("the engine changed its input (-want +got):\n%s", d)
	}
}
