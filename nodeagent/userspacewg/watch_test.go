package userspacewg

import (
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"
)

// TestWatchPatience has a process that does not answer, and asks when it is taken
// for one that hangs.
func TestWatchPatience(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		waits   time.Duration // for a processor in each second
		replies int           // the last that it gives, in seconds from the first question
		want    int           // seconds
	}{
		{name: "silent", want: 3},
		{name: "silent later", replies: 10, want: 13},
		{name: "on a machine that is busy", waits: 500 * time.Millisecond, want: 5},
		{name: "without a processor", waits: time.Second, want: 30},
		{name: "with several threads that wait", waits: 4 * time.Second, want: 30},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := &Watch{Log: slog.New(slog.DiscardHandler), known: map[string]*process{}}
			began, name := time.Now(), randomName()
			for second := range 60 {
				// It is this process, which is no tunnel and so not ended.
				a := answer{pid: os.Getpid(), waited: time.Duration(second) * tt.waits, err: os.ErrDeadlineExceeded}
				if second < tt.replies {
					a.err = nil
				}
				w.note(name, a, began.Add(time.Duration(second)*time.Second))
				if w.known[name].cause != "" {
					if second != tt.want {
						t.Errorf("it hangs after %d s, want %d", second, tt.want)
					}
					return
				}
			}
			t.Error("it never hangs")
		})
	}
}

func TestWaited(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/schedstat"); errors.Is(err, os.ErrNotExist) {
		t.Skip("needs a kernel with schedstat")
	}
	if got := waited(os.Getpid()); got <= 0 {
		t.Errorf("this process waited %v for a processor", got)
	}
	if got := waited(1 << 30); got != 0 {
		t.Errorf("no process waited %v", got)
	}
}
