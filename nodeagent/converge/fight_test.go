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
		r := newTestEngine()
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
				t.Fatalf("pass %d did not make the change", i+1)
			}
		}
		if made() {
			t.Error("pass 6 made the change again")
		}
		// Other keys are not delayed.
		r.lower.Remove("b")
		if made(); !slices.Contains(keys(r.lower), "b") {
			t.Error("another key was also paused")
		}
		time.Sleep(31 * time.Second)
		if !made() {
			t.Error("the change was not tried after the pause")
		}
		if made() {
			t.Error("the change was tried twice after one pause")
		}
		time.Sleep(31 * time.Second)
		if made() {
			t.Error("the second pause is not longer than the first")
		}
		time.Sleep(31 * time.Second)
		if !made() {
			t.Error("the change was not tried after the second pause")
		}
		// One pass without the change clears the history.
		r.engine.Once(t.Context(), want, "1")
		if !made() {
			t.Error("a change after a pass without it was paused")
		}
	})
}
