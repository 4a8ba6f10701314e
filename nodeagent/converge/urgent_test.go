package converge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/converge/convergetest"
)

// urgentEngine is an engine with two stages. The first needs a second for each change, the second
// is urgent.
type urgentEngine struct {
	lower, upper *convergetest.World[item]
	engine       *converge.Engine[state]
	now          atomic.Pointer[state]
	urgent       chan struct{}
	trigger      chan struct{}
	reports      chan converge.Report
	written      chan string // keys of upper, with the time since the start
}

func newUrgentEngine() *urgentEngine {
	r := &urgentEngine{
		lower: convergetest.NewWorld[item](), upper: convergetest.NewWorld[item](),
		urgent: make(chan struct{}, 1), trigger: make(chan struct{}, 1),
		reports: make(chan converge.Report, 1000), written: make(chan string, 1000),
	}
	startedAt := time.Now()
	r.lower.Fault = func(diff.Change[item]) error { time.Sleep(time.Second); return nil }
	r.upper.Fault = func(c diff.Change[item]) error {
		r.written <- fmt.Sprintf("%s%s at %v", c.Op, c.Key, time.Since(startedAt))
		return nil
	}
	r.engine = &converge.Engine[state]{
		Stages: []converge.Stage[state]{
			converge.NewStage(r.lower.Kind("lower"), func(s state) []item { return s.Lower }, nil),
			converge.MarkUrgent(converge.NewStage(r.upper.VersionedKind("upper"), func(s state) []item { return s.Upper }, nil)),
		},
		Urgent: &converge.UrgentConfig[state]{Trigger: r.urgent, Source: func(context.Context) (state, string, bool) {
			return state{Upper: r.now.Load().Upper}, "", true
		}},
		OnReport: func(report converge.Report) { r.reports <- report },
	}
	return r
}

func (r *urgentEngine) run(ctx context.Context) {
	r.engine.Run(ctx, func(context.Context) (state, string, bool) {
		s := r.now.Load()
		return *s, fmt.Sprint(*s), true
	}, r.trigger)
}

func (r *urgentEngine) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-r.written:
		if got != want {
			t.Errorf("wrote %s, want %s", got, want)
		}
	default:
		t.Errorf("nothing was written, want %s", want)
	}
}

func TestUrgentRunsFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newUrgentEngine()
		r.engine.Once(t.Context(), state{}, "")
		r.now.Store(&state{Lower: items("a"), Upper: items("u")})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.run(ctx)

		// The full pass that writes a is preempted, and continues. Its own outdated u is
		// never written.
		time.Sleep(500 * time.Millisecond)
		r.now.Store(&state{Lower: items("a", "b"), Upper: items("v")})
		r.urgent <- struct{}{}
		time.Sleep(510 * time.Millisecond)
		r.expect(t, "+v at 1s")
		if report := <-r.reports; len(report.Changed) != 2 || !report.Clean() || report.Objects["upper"] != 1 {
			t.Errorf("report %+v", report)
		}

		// The following full pass writes b.
		time.Sleep(1500 * time.Millisecond)
		if report := <-r.reports; len(report.Changed) != 1 || !report.Clean() || len(report.Drift) != 0 || len(r.reports) != 0 {
			t.Errorf("report %+v", report)
		}

		// Urgent changes do not wait for it.
		r.now.Store(&state{Lower: items("a", "b"), Upper: items("v", "w")})
		r.urgent <- struct{}{}
		synctest.Wait()
		r.expect(t, "+w at 2.51s")
		time.Sleep(time.Second)
		if report := <-r.reports; len(report.Changed) != 1 || len(report.Drift) != 0 {
			t.Errorf("report after an urgent pass: %+v", report)
		}
		r.now.Store(&state{Lower: items("a", "b"), Upper: items("w")})
		r.urgent <- struct{}{}
		synctest.Wait()
		r.expect(t, "-v at 3.51s")
	})
}

// TestUrgentWaitsForFirstFullPass checks that nothing preempts the first full pass, because urgent
// stages depend on it. Objects of the previous agent are deleted in the order of the stages.
func TestUrgentWaitsForFirstFullPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newUrgentEngine()
		r.upper.Put(items("old")[0])
		r.now.Store(&state{Lower: items("a", "b"), Upper: items("u")})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.run(ctx)

		time.Sleep(500 * time.Millisecond)
		r.now.Store(&state{Lower: items("a", "b"), Upper: items("u", "v")})
		r.urgent <- struct{}{}
		time.Sleep(3 * time.Second)
		r.expect(t, "+u at 2s")
		r.expect(t, "-old at 2s")
		r.expect(t, "+v at 2s")
	})
}

// TestUrgentFailureDuringFullPass checks that the report of a full pass has the blocked changes of
// an urgent pass that preempted it.
func TestUrgentFailureDuringFullPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newUrgentEngine()
		r.engine.Once(t.Context(), state{}, "")
		r.upper.Fault = func(diff.Change[item]) error { return converge.ErrBlocked{On: "lower"} }
		r.now.Store(&state{Lower: items("a"), Upper: items("u")})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.run(ctx)
		time.Sleep(500 * time.Millisecond)
		r.urgent <- struct{}{}
		if report := <-r.reports; report.Clean() || len(report.Blocked) != 1 || len(report.Changed) != 1 {
			t.Errorf("report %+v", report)
		}
	})
}

// TestUrgentDelaysFullPass checks that one full pass follows several urgent passes and their drift
// events. A trigger does not wait for it.
func TestUrgentDelaysFullPass(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		token func(r *urgentEngine, drift chan struct{}) chan struct{}
		want  []string
	}{
		{"drift", func(_ *urgentEngine, drift chan struct{}) chan struct{} { return drift }, []string{"full at 1.15s"}},
		{"trigger", func(r *urgentEngine, _ chan struct{}) chan struct{} { return r.trigger }, []string{"full at 1.12s"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, drift := newUrgentEngine(), make(chan struct{}, 1)
				r.lower.Fault = nil
				r.engine.Drift = drift
				r.now.Store(&state{Lower: items("a"), Upper: items("u")})
				ctx, cancel := context.WithCancel(t.Context())
				startedAt := time.Now()
				var whole []string
				r.engine.OnReport = func(converge.Report) { whole = append(whole, fmt.Sprint("full at ", time.Since(startedAt))) }
				go r.run(ctx)
				time.Sleep(time.Second)
				for _, key := range []string{"v", "w", "x"} {
					r.now.Store(&state{Lower: items("a", key), Upper: items("u", key)})
					r.urgent <- struct{}{}
					time.Sleep(40 * time.Millisecond)
				}
				tt.token(r, drift) <- struct{}{}
				time.Sleep(time.Second)
				cancel()
				synctest.Wait()
				var written []string
				for range len(r.written) {
					written = append(written, <-r.written)
				}
				slices.Sort(written[1:])
				if diff := cmp.Diff([]string{"+u at 0s", "+v at 1s", "+w at 1.04s", "+x at 1.08s", "-v at 1.04s", "-w at 1.08s"}, written); diff != "" {
					t.Errorf("urgent changes (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(append([]string{"full at 0s"}, tt.want...), whole); diff != "" {
					t.Errorf("full passes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestUrgentDoesNotStarveFullPasses sends urgent tokens continuously.
func TestUrgentDoesNotStarveFullPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newUrgentEngine()
		r.lower.Fault = func(diff.Change[item]) error { time.Sleep(time.Second); return errors.New("no") }
		r.now.Store(&state{Lower: items("a"), Upper: items("u")})
		passes := 0
		source := r.engine.Urgent.Source
		r.engine.Urgent.Source = func(ctx context.Context) (state, string, bool) {
			passes++
			return source(ctx)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				select {
				case r.urgent <- struct{}{}:
				default:
				}
				time.Sleep(100 * time.Microsecond)
			}
		}()
		r.run(ctx)
		time.Sleep(time.Millisecond) // lets the sending goroutine return
		if len(r.reports) < 5 {
			t.Errorf("%d full passes in a minute", len(r.reports))
		}
		if most := int(time.Minute / (2 * time.Millisecond)); passes > most || passes < 50 {
			t.Errorf("%d urgent passes in a minute, want 50 to %d", passes, most)
		}
	})
}

// TestEmptyUrgentStateDeletesNothing has an urgent source with an empty desired state.
func TestEmptyUrgentStateDeletesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newUrgentEngine()
		r.upper.Put(item{Name: "u", Text: "t"})
		r.lower.Fault = nil
		r.now.Store(&state{Lower: items("a"), Upper: items("u")})
		r.engine.Urgent.Source = func(context.Context) (state, string, bool) { return state{}, "", true }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.run(ctx)
		time.Sleep(time.Minute)
		r.urgent <- struct{}{}
		synctest.Wait()
		if len(r.written) > 0 || len(keys(r.upper)) != 1 {
			t.Errorf("changes %v, left %v", len(r.written), keys(r.upper))
		}
	})
}

// singleBatches is a kind whose batches have one change each.
type singleBatches struct{ *convergetest.Kind[item] }

func (singleBatches) Batches(changes []diff.Change[item]) [][]diff.Change[item] {
	return slices.Collect(slices.Chunk(changes, 1))
}

// TestUrgentBetweenBatches checks that an urgent pass runs after the current batch of a stage,
// before the other batches.
func TestUrgentBetweenBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newUrgentEngine()
		r.engine.Once(t.Context(), state{}, "")
		r.engine.Stages[0] = converge.NewStage[state](singleBatches{r.lower.Kind("lower")}, func(s state) []item { return s.Lower }, nil)
		r.now.Store(&state{Lower: items("a", "b", "c"), Upper: items("u")})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go r.run(ctx)
		time.Sleep(500 * time.Millisecond)
		r.urgent <- struct{}{}
		report := <-r.reports
		r.expect(t, "+u at 1s")
		if n := len(r.lower.Objects()); n != 3 || len(report.Changed) != 4 {
			t.Errorf("%d objects after %v", n, report.Changed)
		}
	})
}

// TestUrgentWithoutStateNeedsNoFullPass checks that no full pass follows an urgent token whose
// source has no state.
func TestUrgentWithoutStateNeedsNoFullPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newUrgentEngine()
		r.now.Store(&state{Upper: items("u")})
		var asked atomic.Int32
		r.engine.Urgent.Source = func(context.Context) (state, string, bool) {
			asked.Add(1)
			return state{}, "", false
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.run(ctx)
		time.Sleep(time.Second)
		for range 3 {
			r.urgent <- struct{}{}
			time.Sleep(time.Second)
		}
		if asked.Load() != 3 || len(r.reports) != 1 {
			t.Errorf("%d urgent passes and %d full ones, want 3 and 1", asked.Load(), len(r.reports))
		}
	})
}

// TestUrgentPassReadsNothing checks that an urgent pass compares with the objects that the engine
// wrote. It reads them if the pass before failed, and if it runs instead of a stage of a full pass.
func TestUrgentPassReadsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newUrgentEngine()
		r.now.Store(&state{Lower: items("a"), Upper: items("u", "v")})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.run(ctx)
		time.Sleep(2 * time.Second)
		urgent := func(want string, reads int, names ...string) {
			t.Helper()
			before := r.upper.Observed()
			r.now.Store(&state{Lower: r.now.Load().Lower, Upper: items(names...)})
			r.urgent <- struct{}{}
			time.Sleep(20 * time.Millisecond) // no full pass follows within this time
			synctest.Wait()
			if got := r.upper.Observed() - before; got != reads {
				t.Errorf("%v: read %d times, want %d", names, got, reads)
			}
			if d := cmp.Diff(want, fmt.Sprint(keys(r.upper))); d != "" {
				t.Errorf("%v: objects (-want +got):\n%s", names, d)
			}
		}
		urgent("[u v w]", 0, "u", "v", "w")
		urgent("[u w]", 0, "u", "w") // before the full pass that follows
		time.Sleep(5 * time.Second)
		urgent("[a u w]", 0, "a", "u", "w")
		time.Sleep(5 * time.Second)
		synctest.Wait()

		fault := r.upper.Fault
		r.upper.Fault = func(diff.Change[item]) error { return errors.New("no") }
		urgent("[a u w]", 0, "a", "b", "u", "w")
		r.upper.Fault = fault
		urgent("[a b u w]", 1, "a", "b", "u", "w")
		time.Sleep(5 * time.Second)
		synctest.Wait()

		// Another writer removes an object. The full pass restores it, also if an urgent
		// pass runs during it.
		r.upper.Remove("u")
		urgent("[a b c w]", 0, "a", "b", "c", "u", "w")
		r.now.Store(&state{Lower: items("z"), Upper: items("a", "b", "c", "u", "w")})
		r.trigger <- struct{}{}
		time.Sleep(500 * time.Millisecond)
		r.now.Store(&state{Lower: items("z"), Upper: items("a", "b", "u", "w")})
		r.urgent <- struct{}{}
		time.Sleep(600 * time.Millisecond)
		if d := cmp.Diff("[a b u w]", fmt.Sprint(keys(r.upper))); d != "" {
			t.Errorf("objects after the full pass (-want +got):\n%s", d)
		}
		time.Sleep(5 * time.Second) // ends the writes of the stage below
	})
}

// TestUrgentChangeIsNotLoggedAsDrift checks the log of a verify-only pass with an urgent pass in it.
func TestUrgentChangeIsNotLoggedAsDrift(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newUrgentEngine()
		desired := state{Lower: items("a"), Upper: items("u")}
		r.engine.Once(t.Context(), desired, "1")
		var out bytes.Buffer
		r.engine.Log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		r.lower.Remove("a")
		r.now.Store(&state{Upper: items("u", "v")})
		r.urgent <- struct{}{}
		report := r.engine.Once(t.Context(), desired, "1")
		if want := map[string]int{"lower": 1}; !cmp.Equal(want, report.Drift) || len(report.Changed) != 2 {
			t.Errorf("changed %v, drift %v", report.Changed, report.Drift)
		}
		for _, want := range []string{
			`level=WARN msg="drift repaired" kind=lower op=+ key=a`,
			`level=DEBUG msg=changed kind=upper op=+ key=v`,
			`level=INFO msg="round done" digest=1 changed=2 blocked=0 failed=0 passes=1`,
		} {
			if strings.Count(out.String(), want) != 1 {
				t.Errorf("the log does not have %q once:\n%s", want, out.String())
			}
		}
	})
}
