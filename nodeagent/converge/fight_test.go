package converge_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestFight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		want := state{Lower: items("a", "b"), Upper: items("u")}
		made := func() bool {
			r.lower.Remove("a")
			report := r.engine.Once(t.Context(), want, "1")
			if fights := len(report.Fights); (fights == 1) == slices.Contains(keys(r.lower), "a") {
				t.Errorf("a exists although %d fights are reported", fights)
			}
			return slices.Contains(keys(r.lower), "a")
		}
		for i := range 5 {
			if !made() {
				t.Fatalf("pass %d left the change alone", i+1)
			}
		}
		if made() {
			t.Error("pass 6 made the change again")
		}
		// Other keys are not held up.
		r.lower.Remove("b")
		if made(); !slices.Contains(keys(r.lower), "b") {
			t.Error("another key was left alone too")
		}
		time.Sleep(31 * time.Second)
		if !made() {
			t.Error("the change was not tried after the pause")
		}
		if made() {
			t.Error("it was tried twice after one pause")
		}
		time.Sleep(31 * time.Second)
		if made() {
			t.Error("the second pause is not longer than the first")
		}
		time.Sleep(31 * time.Second)
		if !made() {
			t.Error("the change was not tried after the second pause")
		}
		// Peace: one pass without the change and the history is forgotten.
		r.engine.Once(t.Context(), want, "1")
		if !made() {
			t.Error("a change after peace was left alone")
		}
	})
}
