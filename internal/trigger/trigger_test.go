package trigger_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"hawser.dev/hawser/internal/trigger"
)

// TestLoop checks that the first step runs at once, then one per interval and per trigger,
// which restarts the interval.
func TestLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b, begin := trigger.New(), time.Now()
		var steps []time.Duration
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.Run(ctx, func() time.Duration {
				steps = append(steps, time.Since(begin))
				return time.Minute
			})
		}()
		synctest.Wait()
		time.Sleep(time.Minute + 10*time.Second)
		b.Fire()
		synctest.Wait()
		time.Sleep(time.Minute)
		cancel()
		<-ended
		if have, want := fmt.Sprint(steps), "[0s 1m0s 1m10s 2m10s]"; have != want {
			t.Errorf("steps at %s, want %s", have, want)
		}
	})
}

// TestRings checks that pending triggers are merged and kept.
func TestRings(t *testing.T) {
	t.Parallel()
	b := trigger.New()
	b.Fire()
	b.Fire()
	if len(b) != 1 {
		t.Errorf("%d rings wait, want one", len(b))
	}
}
