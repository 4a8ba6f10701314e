package converge_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/converge/convergetest"
)

// deferrer is a kind with a write delay.
type deferrer struct {
	*convergetest.Kind[item]
	writeDelay time.Duration
}

func (p *deferrer) WriteDelay() time.Duration { return p.writeDelay }

func deferringEngine(w *convergetest.World[item], writeDelay time.Duration) *converge.Engine[[]item] {
	kind := &deferrer{Kind: w.Kind("object"), writeDelay: writeDelay}
	return &converge.Engine[[]item]{
		Stages:       []converge.Stage[[]item]{converge.NewStage(kind, func(want []item) []item { return want }, nil)},
		Decommission: func([]item) bool { return true },
	}
}

func TestWriteDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := convergetest.NewWorld[item]()
		second := deferringEngine(w, 2*time.Second)
		want := items("a", "b")
		startedAt := time.Now()
		report := second.Once(t.Context(), want, "1")
		if len(report.Deferred) != 2 || len(report.Changed) != 0 || report.Clean() || report.Err() != nil {
			t.Fatalf("first pass: deferred %v, changed %v", report.Deferred, report.Changed)
		}
		if !errors.Is(report.Deferred[0], converge.ErrDeferred) || !report.Next.Equal(startedAt.Add(2*time.Second)) {
			t.Errorf("deferred as %v, due in %v", report.Deferred[0], report.Next.Sub(startedAt))
		}
		// The first writer creates a, and never b.
		w.Put(want[0])
		time.Sleep(time.Second)
		second.Once(t.Context(), want, "1")
		time.Sleep(time.Second)
		report = second.Once(t.Context(), want, "1")
		if len(report.Changed) != 1 || report.Changed[0].Key != "b" || !report.Clean() {
			t.Errorf("after the wait: changed %v, deferred %v", report.Changed, report.Deferred)
		}
		// A change that is needed again waits again, also a delete.
		w.Remove("a")
		if report = second.Once(t.Context(), want[:1], "2"); len(report.Deferred) != 2 || len(report.Changed) != 0 {
			t.Errorf("needed again: changed %v, deferred %v", report.Changed, report.Deferred)
		}
		time.Sleep(2 * time.Second)
		if report = second.Once(t.Context(), want[:1], "2"); len(report.Changed) != 2 {
			t.Errorf("after the second wait: changed %v, deferred %v", report.Changed, report.Deferred)
		}
	})
}

// TestTwoWritersDisagree runs two writers with different desired states for an hour.
func TestTwoWritersDisagree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := convergetest.NewWorld[item]()
		trigger := []chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		writes := make([]int, 2)
		done := make(chan struct{})
		for i := range 2 {
			e := deferringEngine(w, time.Duration(i)*2*time.Second)
			e.OnReport = func(r converge.Report) {
				writes[i] += len(r.Changed)
				if len(r.Changed) > 0 {
					trigger[1-i] <- struct{}{}
				}
			}
			want := items("a")
			want[0].Text = []string{"x", "y"}[i]
			go func() {
				e.Run(ctx, func(context.Context) ([]item, string, bool) { return want, "1", true }, trigger[i])
				done <- struct{}{}
			}()
		}
		<-done
		<-done
		if writes[0] > 25 || writes[1] > 20 {
			t.Errorf("%d and %d writes in an hour", writes[0], writes[1])
		}
		if writes[0] < 2 || writes[1] < 1 {
			t.Errorf("%d and %d writes in an hour: a writer gave up", writes[0], writes[1])
		}
	})
}

func TestOwnChangesAreNotDelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := convergetest.NewWorld[item]()
		first := deferringEngine(w, 0)
		// Our own desired state alternates. No other writer reverts it, so no change waits.
		for i := range 20 {
			want := items("a")
			want[0].Text = []string{"x", "y"}[i%2]
			if report := first.Once(t.Context(), want, want[0].Text); len(report.Changed) != 1 {
				t.Fatalf("change %d was deferred: %v", i, report.Deferred)
			}
		}
		// Another writer reverts the same change: it is repeated at once three times.
		for i := range 3 {
			w.Remove("a")
			if report := first.Once(t.Context(), items("a"), "1"); len(report.Changed) != 1 {
				t.Fatalf("time %d: deferred %v", i, report.Deferred)
			}
			first.Once(t.Context(), items("a"), "1")
		}
		w.Remove("a")
		report := first.Once(t.Context(), items("a"), "1")
		if len(report.Changed) != 0 || time.Until(report.Next) != 8*time.Second {
			t.Errorf("fourth time: changed %v, due in %v", report.Changed, time.Until(report.Next))
		}
	})
}
