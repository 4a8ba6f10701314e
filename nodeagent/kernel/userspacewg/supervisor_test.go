package userspacewg

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/kernel/childprocess"
)

// TestHangTimeout checks when a process that does not reply is killed.
func TestHangTimeout(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		waits   time.Duration // on a run queue in each second
		replies int           // number of replies, one a second
		want    int           // seconds
	}{
		{name: "silent", want: 3},
		{name: "silent later", replies: 10, want: 13},
		{name: "on a busy machine", waits: 500 * time.Millisecond, want: 5},
		{name: "without a processor", waits: time.Second, want: 30},
		{name: "several threads wait", waits: 4 * time.Second, want: 30},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &Supervisor{Log: slog.New(slog.DiscardHandler)}
			s.init()
			start, name := time.Now(), randomName()
			for second := range 60 {
				// The reply names this process, which is not a tunnel process and
				// so is not killed.
				a := pingReply{pid: os.Getpid(), usage: childprocess.Usage{Waited: time.Duration(second) * tt.waits}, err: os.ErrDeadlineExceeded}
				if second < tt.replies {
					a.err = nil
				}
				s.record(name, a, start.Add(time.Duration(second)*time.Second))
				if s.processes[name].cause != "" {
					if second != tt.want {
						t.Errorf("killed after %d s, want %d", second, tt.want)
					}
					return
				}
			}
			t.Error("never killed")
		})
	}
}
