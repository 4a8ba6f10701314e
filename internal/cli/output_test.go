package cli

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress checks that a command prints its current step after two seconds, and prints nothing
// if it ends before.
func TestProgress(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]string{
		progressDelay - time.Millisecond: "", progressDelay + time.Millisecond: "reading branch rendered...\n", time.Hour: "reading branch rendered...\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			e := &Env{Err: &out}
			done := e.Progress("reading branch rendered")
			time.Sleep(took) // of the test's clock
			synctest.Wait()
			done()
			if out.String() != want {
				t.Errorf("after %s: %q, want %q", took, out.String(), want)
			}
		})
	}
}
