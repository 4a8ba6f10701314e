package converge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
)

func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTestEngine()
		reports := make(chan converge.Report, 100)
		r.engine.OnReport = func(report converge.Report) { reports <- report }
		var now atomic.Pointer[state]
		source := func(context.Context) (state, string, bool) {
			s := now.Load()
			if s == nil {
				return state{}, "", false
			}
			return *s, fmt.Sprint(*s), true
		}
		r.lower.Put(item{Name: "left over"})
		trigger := make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { r.engine.Run(ctx, source, trigger); close(ended) }()

		time.Sleep(5 * time.Minute)
		if len(reports) > 0 || len(r.lower.Calls()) > 0 {
			t.Errorf("acted without a desired state: %v", r.lower.Calls())
		}
		now.Store(&state{Lower: items("a"), Decommission: true})
		trigger <- struct{}{}
		time.Sleep(time.Second) // the engine may rest after its resync period
		if d := cmp.Diff([]string{"a"}, keys(r.lower)); d != "" {
			t.Errorf("after the first state (-want +got):\n%s", d)
		}
		now.Store(nil)
		time.Sleep(time.Minute)
		if d := cmp.Diff([]string{"a"}, keys(r.lower)); d != "" {
			t.Errorf("an invalid state changed something (-want +got):\n%s", d)
		}
		if n := len(reports); n < 2 || n > 4 {
			t.Errorf("%d reports in a minute of a 30 s resync period", n)
		}
		cancel()
		<-ended
	})
}

// TestRunRests checks that a second pass runs at once, and that a stream of triggers uses at most
// half of the time.
func TestRunRests(t *testing.T) {
	t.Parallel()
	for _, took := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 120 * time.Millisecond} {
		t.Run(took.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newTestEngine()
				r.lower.Fault = func(diff.Change[item]) error {
					time.Sleep(took)
					return nil
				}
				trigger := make(chan struct{}, 1)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				var ends []time.Time
				r.engine.OnReport = func(converge.Report) {
					ends = append(ends, time.Now())
					trigger <- struct{}{}
				}
				n := 0
				source := func(context.Context) (state, string, bool) {
					n++
					return state{Lower: []item{{Name: "a", Text: fmt.Sprint(n)}}}, fmt.Sprint(n), true
				}
				begun := time.Now()
				r.engine.Run(ctx, source, trigger)
				if second := ends[1].Sub(ends[0]) - took; second > 10*time.Millisecond {
					t.Errorf("the second pass began %s after the first", second)
				}
				worked, all := time.Duration(len(ends))*took, time.Since(begun)
				if worked > all/2+300*time.Millisecond {
					t.Errorf("worked %s of %s", worked, all)
				}
			})
		})
	}
}

// TestRunDelaysDriftAfterOwnChanges checks that the drift events of own changes lead to one delayed
// pass. An event of another writer leads to a pass at once.
func TestRunDelaysDriftAfterOwnChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTestEngine()
		drift, trigger := make(chan struct{}, 1), make(chan struct{}, 1)
		r.engine.Drift = drift
		event := func() {
			select {
			case drift <- struct{}{}:
			default:
			}
		}
		r.lower.Fault = func(diff.Change[item]) error { event(); return nil }
		reports := make(chan time.Time, 100)
		r.engine.OnReport = func(converge.Report) { reports <- time.Now() }
		var n atomic.Int32
		source := func(context.Context) (state, string, bool) {
			text := fmt.Sprint(n.Load())
			return state{Lower: []item{{Name: "a", Text: text}}}, text, true
		}
		passes := func(since time.Time) (out []time.Duration) {
			for len(reports) > 0 {
				out = append(out, (<-reports).Sub(since))
			}
			return out
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.engine.Run(ctx, source, trigger)
		time.Sleep(10 * time.Second)
		passes(time.Now())

		begun := time.Now()
		for range 5 { // changes of the desired state, each with its own drift event
			n.Add(1)
			trigger <- struct{}{}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		if at := passes(begun); len(at) != 6 || at[5] > time.Second {
			t.Errorf("passes at %v, want five for five changes, and one for all drift events", at)
		}

		begun = time.Now()
		r.lower.Put(item{Name: "a", Text: "another"}) // another writer
		event()
		time.Sleep(5 * time.Second)
		if at := passes(begun); len(at) != 2 || at[0] > 0 {
			t.Errorf("passes at %v, want one at once for another writer's change, and one for the repair", at)
		}
	})
}

func TestRunBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTestEngine()
		var at []time.Duration
		startedAt := time.Now()
		r.lower.Fault = func(diff.Change[item]) error {
			at = append(at, time.Since(startedAt).Round(time.Second))
			return errors.New("no")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		source := func(context.Context) (state, string, bool) { return state{Lower: items("a")}, "1", true }
		r.engine.Run(ctx, source, make(chan struct{}, 1))
		want := []time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 31 * time.Second}
		if len(at) < len(want) {
			t.Fatalf("tried at %v only", at)
		}
		if d := cmp.Diff(want, at[:len(want)]); d != "" {
			t.Errorf("tried at (-want +got):\n%s", d)
		}
		for i := len(want); i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap > 34*time.Second {
				t.Errorf("gap of %v, more than the resync period", gap)
			}
		}
	})
}

func TestBlockedIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTestEngine()
		var out bytes.Buffer
		r.engine.Log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
		r.lower.Fault = func(diff.Change[item]) error { return converge.ErrBlocked{On: "link x"} }
		for range 6 {
			r.engine.Once(t.Context(), state{Lower: items("a")}, "1")
			time.Sleep(25 * time.Second)
		}
		if n := strings.Count(out.String(), "level=WARN msg=\"change blocked\" kind=lower key=a waiting_for=\"link x\""); n != 1 {
			t.Errorf("logged %d times in 2.5 minutes, want once:\n%s", n, out.String())
		}
	})
}
