package converge_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/converge/convergetest"
)

// slow is a kind whose Observe takes 100 ms.
type slow struct{ *convergetest.Kind[item] }

func (k slow) Observe(ctx context.Context) ([]item, error) {
	time.Sleep(100 * time.Millisecond)
	return k.Kind.Observe(ctx)
}

// TestVerifyOnlyPassStopsEarly checks that a trigger stops a verify-only pass, and that this
// happens a limited number of times in a row.
func TestVerifyOnlyPassStopsEarly(t *testing.T) {
	t.Parallel()
	for _, changed := range []bool{false, true} {
		t.Run(fmt.Sprintf("changed state %t", changed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testVerifyOnlyPass(t, changed) })
		})
	}
}

// TestRepairCountsAsDrift checks that a repair counts as drift although its own events trigger a
// pass.
func TestRepairCountsAsDrift(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTestEngine()
		reports, trigger := make(chan converge.Report, 10), make(chan struct{}, 1)
		r.engine.OnReport = func(report converge.Report) { reports <- report }
		r.lower.Fault = func(diff.Change[item]) error {
			select {
			case trigger <- struct{}{}:
			default:
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		want := state{Lower: items("a"), Upper: items("u")}
		go r.engine.Run(ctx, func(context.Context) (state, string, bool) { return want, "1", true }, trigger)
		time.Sleep(time.Second)
		for len(reports) > 0 {
			<-reports
		}
		r.lower.Remove("a")
		trigger <- struct{}{}
		time.Sleep(time.Second)
		if report := <-reports; len(report.Changed) != 1 || report.Drift["lower"] != 1 {
			t.Errorf("changed %v, drift %v", report.Changed, report.Drift)
		}
	})
}

func testVerifyOnlyPass(t *testing.T, changed bool) {
	lower, upper := convergetest.NewWorld[item](), convergetest.NewWorld[item]()
	reports, start := make(chan string, 1000), time.Now()
	engine := &converge.Engine[state]{
		Stages: []converge.Stage[state]{
			converge.NewStage[state, item](slow{lower.Kind("lower")}, func(s state) []item { return s.Lower }, nil),
			converge.NewStage[state, item](slow{upper.Kind("upper")}, func(s state) []item { return s.Upper }, nil),
		},
		OnReport: func(r converge.Report) { reports <- fmt.Sprintf("%d at %s", len(r.Changed), time.Since(start)) },
	}
	var now atomic.Pointer[state]
	now.Store(&state{Lower: items("a"), Upper: items("u")})
	trigger := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		engine.Run(ctx, func(context.Context) (state, string, bool) { return *now.Load(), fmt.Sprint(*now.Load()), true }, trigger)
		close(ended)
	}()
	time.Sleep(time.Second)
	trigger <- struct{}{}
	for range 10 {
		time.Sleep(50 * time.Millisecond)
		if changed {
			now.Store(&state{Lower: items("a"), Upper: items("u", "v")})
		}
		select {
		case trigger <- struct{}{}:
		default:
		}
		if changed {
			break
		}
	}
	time.Sleep(10 * time.Second)
	cancel()
	<-ended
	want := []string{
		// A full pass follows after two interrupted ones, and after one interrupted by a
		// changed state.
		"2 at 200ms", "0 at 1.4s", "0 at 1.71s",
	}
	if changed {
		want = []string{"2 at 200ms", "1 at 1.3s"}
	}
	close(reports)
	var have []string
	for r := range reports {
		have = append(have, r)
	}
	if fmt.Sprint(have) != fmt.Sprint(want) {
		t.Errorf("passes %v, want %v", have, want)
	}
}
