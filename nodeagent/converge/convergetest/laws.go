// Package convergetest has the laws that every kind of converge must keep, and a kind in memory
// that keeps them.
package convergetest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
)

// Samples are the inputs of the laws for a kind. Nil functions skip laws that the kind cannot
// keep.
type Samples[S diff.Spec] struct {
	// Want has objects with different keys, of all sorts of the kind, with as many fields set
	// as possible.
	Want []S
	// Vary returns copies of an object with the same key, each with another field changed to a
	// value that the world accepts.
	Vary func(S) []S
	// Tamper has foreign changes of the objects of Want, by name. The kind must detect and
	// revert each of them.
	Tamper map[string]func(t *testing.T)
	// Foreign creates foreign objects that resemble ours. The returned function checks that
	// they are unharmed.
	Foreign func(t *testing.T) (unharmed func() error)
	// Conflict creates a foreign object. It returns an object of ours that would have to
	// replace it, and a function that checks that the foreign object is unharmed.
	Conflict func(t *testing.T) (want S, unharmed func() error)
	// Silent names struct fields, in addition to Origin, that Key and Fields may omit.
	Silent []string
}

// Laws checks all laws of a kind. newKind returns a new kind over the same world each time,
// like a new process. The world has none of our objects at the beginning and at the end.
func Laws[S diff.Spec](t *testing.T, newKind func(t *testing.T) converge.Kind[S], samples Samples[S]) {
	l := laws[S]{newKind: newKind, samples: samples}
	for _, law := range []struct {
		name  string
		check func(t *testing.T)
	}{
		{"1 fixed point", l.fixedPoint},
		{"2 idempotent", l.idempotent},
		{"3 repairs", l.repairs},
		{"9 cache matches a fresh read", l.cacheMatchesFreshRead}, // before foreign objects exist
		{"4 foreign objects survive", l.foreignSurvives},
		{"5 new process removes exactly ours", l.removesOurs},
		{"6 missing and foreign", l.missingAndForeign},
		{"7 every field shows", l.everyFieldShows},
		{"8 secrets never print", l.secretsNeverPrint},
	} {
		if !t.Run(law.name, law.check) {
			// The world is in a state that later laws do not expect.
			return
		}
	}
}

type laws[S diff.Spec] struct {
	newKind func(t *testing.T) converge.Kind[S]
	samples Samples[S]
}

func (l laws[S]) engine(t *testing.T) *converge.Engine[[]S] {
	stage := converge.NewStage(l.newKind(t), func(want []S) []S { return want }, nil)
	return &converge.Engine[[]S]{
		Stages:       []converge.Stage[[]S]{stage},
		Decommission: func([]S) bool { return true },
	}
}

// converge converges the world to want and checks that this works.
func (l laws[S]) converge(t *testing.T, want []S) converge.Report {
	t.Helper()
	report := l.engine(t).Once(t.Context(), want, "")
	if !report.Clean() {
		t.Fatalf("converge: failed %v, blocked %v", report.Failed, report.Blocked)
	}
	return report
}

// settled checks that a new process finds no changes left.
func (l laws[S]) settled(t *testing.T, want []S) {
	t.Helper()
	if plan := l.plan(t, want); len(plan) > 0 {
		t.Fatalf("plan after converge has %d changes:\n%v", len(plan), plan)
	}
}

func (l laws[S]) plan(t *testing.T, want []S) []converge.Change {
	t.Helper()
	plan, err := l.engine(t).Plan(t.Context(), want)
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	return plan
}

func (l laws[S]) clear(t *testing.T) {
	t.Helper()
	l.converge(t, nil)
	have, err := l.newKind(t).Observe(t.Context())
	if err != nil {
		t.Fatalf("observe: %v", err)
	}
	if len(have) > 0 {
		t.Fatalf("%d objects are left after an empty state: %v", len(have), have)
	}
}

func (l laws[S]) fixedPoint(t *testing.T) {
	want := l.samples.Want
	report := l.converge(t, want)
	if len(report.Changed) != len(want) {
		t.Errorf("changed %d objects of %d: %v", len(report.Changed), len(want), report.Changed)
	}
	l.settled(t, want)
	for i := range want {
		// Remove each object in turn, and restore it.
		rest := append(append([]S{}, want[:i]...), want[i+1:]...)
		l.converge(t, rest)
		l.settled(t, rest)
	}
	l.converge(t, want)
	l.settled(t, want)
	l.clear(t)
}

func (l laws[S]) idempotent(t *testing.T) {
	engine := l.engine(t)
	if r := engine.Once(t.Context(), l.samples.Want, ""); !r.Clean() {
		t.Fatalf("first pass: failed %v, blocked %v", r.Failed, r.Blocked)
	}
	again := engine.Once(t.Context(), l.samples.Want, "")
	if len(again.Changed) > 0 || !again.Clean() {
		t.Errorf("second pass changed %v, failed %v", again.Changed, again.Failed)
	}
	l.clear(t)
}

func (l laws[S]) repairs(t *testing.T) {
	want := l.samples.Want
	for i := range want {
		if l.samples.Vary == nil {
			break
		}
		for _, varied := range l.samples.Vary(want[i]) {
			other := append([]S{}, want...)
			other[i] = varied
			l.converge(t, other)
			l.settled(t, other)
			if plan := l.plan(t, want); len(plan) == 0 {
				t.Errorf("%s: the change of a field is not detected:\n%s", want[i].Key(), cmp.Diff(want[i].Fields(), varied.Fields()))
			}
			l.converge(t, want)
			l.settled(t, want)
		}
	}
	for name, tamper := range l.samples.Tamper {
		l.converge(t, want)
		tamper(t)
		if plan := l.plan(t, want); len(plan) == 0 {
			t.Errorf("%s: not seen", name)
		}
		l.converge(t, want)
		if plan := l.plan(t, want); len(plan) > 0 {
			t.Errorf("%s: not undone: %v", name, plan)
		}
	}
	l.clear(t)
}

// cacheMatchesFreshRead uses one engine throughout: its cache after its own changes equals the
// read of a new engine.
func (l laws[S]) cacheMatchesFreshRead(t *testing.T) {
	engine, turn := l.engine(t), 0
	once := func(want []S) {
		t.Helper()
		turn++
		if r := engine.Once(t.Context(), want, strconv.Itoa(turn)); !r.Clean() {
			t.Fatalf("turn %d: failed %v, blocked %v", turn, r.Failed, r.Blocked)
		}
		if again := engine.Once(t.Context(), want, strconv.Itoa(turn)); len(again.Changed) > 0 {
			t.Fatalf("turn %d again: changed %v", turn, again.Changed)
		}
		l.settled(t, want)
	}
	want := l.samples.Want
	for i := range want {
		once(want[i:])
		once(slices.Concat(want[:i], want[i+1:]))
		if l.samples.Vary == nil {
			continue
		}
		for _, varied := range l.samples.Vary(want[i]) {
			once(slices.Concat(want[:i], []S{varied}, want[i+1:]))
		}
	}
	for name, tamper := range l.samples.Tamper {
		once(want)
		tamper(t)
		if r := engine.Once(t.Context(), want, strconv.Itoa(turn)); len(r.Changed) == 0 {
			t.Errorf("%s: not seen", name)
		}
		l.settled(t, want)
	}
	l.clear(t)
}

func (l laws[S]) foreignSurvives(t *testing.T) {
	if l.samples.Foreign == nil {
		return
	}
	unharmed := l.samples.Foreign(t)
	for _, want := range [][]S{l.samples.Want, nil} {
		l.converge(t, want)
		l.settled(t, want)
		if err := unharmed(); err != nil {
			t.Errorf("after %d objects: %v", len(want), err)
		}
	}
}

func (l laws[S]) removesOurs(t *testing.T) {
	l.converge(t, l.samples.Want)
	have, err := l.newKind(t).Observe(t.Context())
	if err != nil {
		t.Fatalf("observe: %v", err)
	}
	if len(have) != len(l.samples.Want) {
		t.Errorf("a new process sees %d objects of %d: %v", len(have), len(l.samples.Want), have)
	}
	l.clear(t)
}

func (l laws[S]) missingAndForeign(t *testing.T) {
	l.converge(t, l.samples.Want)
	kind := l.newKind(t)
	have, err := kind.Observe(t.Context())
	if err != nil {
		t.Fatalf("observe: %v", err)
	}
	var deletes []diff.Change[S]
	for _, h := range have {
		deletes = append(deletes, diff.Change[S]{Op: diff.Delete, Key: h.Key(), Have: h})
	}
	for _, what := range []string{"delete", "delete a missing object"} {
		if err := kind.Apply(t.Context(), deletes); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if l.samples.Conflict != nil {
		l.conflict(t)
	}
	l.clear(t)
}

func (l laws[S]) conflict(t *testing.T) {
	want, unharmed := l.samples.Conflict(t)
	report := l.engine(t).Once(context.WithoutCancel(t.Context()), []S{want}, "")
	if err := report.Err(); !errors.Is(err, converge.ErrConflict) {
		t.Errorf("create %s over a foreign object: error %v, want %v", want.Key(), err, converge.ErrConflict)
	}
	if err := unharmed(); err != nil {
		t.Errorf("after a conflict: %v", err)
	}
}
