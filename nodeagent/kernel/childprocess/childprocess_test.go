package childprocess

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain runs as a child process for some arguments: "child FILE" writes its output and FILE,
// and runs until it is killed; "exit" ends at once.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "child":
		fmt.Fprintln(os.Stderr, "the child runs")
		if err := os.WriteFile(os.Args[2], nil, 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for {
			_ = unix.Pause()
		}
	case len(os.Args) == 2 && os.Args[1] == "exit":
		fmt.Fprintln(os.Stderr, strings.Repeat("x", 2*logTail), "no device")
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// child returns a command that is ready when its file exists.
func child(t *testing.T, ready func(file string) bool) Command {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "ready")
	return Command{
		Name: "child", Cmd: exec.Command(os.Args[0], "child", file), Log: filepath.Join(dir, "child.log"), Timeout: time.Minute,
		Ready: func(ctx context.Context) error { return Poll(ctx, func() bool { return ready(file) }) },
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// start starts a child that is killed at the end of the test.
func start(t *testing.T, ctx context.Context) (int, Command) {
	t.Helper()
	c := child(t, exists)
	pid, err := c.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return pid, c
}

// awaitEnd waits until a process has ended and was reaped.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := Poll(ctx, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }); err != nil {
		t.Errorf("process %d: %v", pid, err)
	}
}

// TestStart checks that a child has a session of its own, outlives the context of its start, and
// is reaped when it ends.
func TestStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	pid, c := start(t, ctx)
	cancel()
	if session, err := unix.Getsid(pid); err != nil || session != pid {
		t.Errorf("session %d of process %d, %v", session, pid, err)
	}
	if raw, err := os.ReadFile(c.Log); err != nil || string(raw) != "the child runs\n" {
		t.Errorf("log %q, %v", raw, err)
	}
	if info, err := os.Stat(c.Log); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("log %v, %v: only the agent's user may read it", info, err)
	}
	if err := Kill(pid, func(string) error { return errors.New("another process") }); err == nil || syscall.Kill(pid, 0) != nil {
		t.Errorf("a process that is not ours was killed: %v", err)
	}
	if err := Kill(pid, func(proc string) error { _, err := os.Stat(proc + "/cmdline"); return err }); err != nil {
		t.Error(err)
	}
	awaitEnd(t, pid)
	if err := Kill(pid, func(string) error { return nil }); err != nil {
		t.Errorf("a process that has ended: %v", err)
	}
}

// TestStartFails starts processes that end, or do not become ready. The latter are killed.
func TestStartFails(t *testing.T) {
	t.Parallel()
	never := child(t, func(string) bool { return false })
	never.Timeout = 100 * time.Millisecond
	exit := func(log string) Command {
		return Command{
			Name: "child", Cmd: exec.Command(os.Args[0], "exit"), Log: log, Timeout: time.Minute,
			Ready: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		}
	}
	missing := exit("")
	missing.Cmd = exec.Command(filepath.Join(t.TempDir(), "missing"))
	tests := []struct {
		name    string
		command Command
		want    []string
	}{
		{"ends, with a log", exit(filepath.Join(t.TempDir(), "new", "log")), []string{"child exited at once (exit status 3)", "no device"}},
		{"ends, without a log", exit(""), []string{"exit status 3", "no log"}},
		{"ends, log cannot be written", exit("/proc/nowhere/log"), []string{"exit status 3", "no log"}},
		{"never ready", never, []string{"child does not reply", context.DeadlineExceeded.Error()}},
		{"no program", missing, []string{"start child", "no such file"}},
	}
	for _, tt := range tests {
		pid, err := tt.command.Start(t.Context())
		if err == nil || pid != 0 {
			t.Errorf("%s: process %d, error %v", tt.name, pid, err)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q, want %q", tt.name, err, want)
			}
		}
		if len(err.Error()) > logTail+200 {
			t.Errorf("%s: the error quotes %d bytes", tt.name, len(err.Error()))
		}
		if p := tt.command.Cmd.Process; p != nil {
			awaitEnd(t, p.Pid)
		}
	}
}

// TestTrimLog checks that a log stays bounded while its process appends to it.
func TestTrimLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	f, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(text string, want int64) {
		t.Helper()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := TrimLog(path); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != want {
			t.Errorf("%v, want %d bytes", info.Size(), want)
		}
	}
	write(strings.Repeat("x", MaxLogSize), MaxLogSize)
	write("x", 0)
	write("again", 5)
	if err := TrimLog(path + ".missing"); err != nil {
		t.Error(err)
	}
}

// TestUsage checks that a busy process has used a processor and a missing one has not.
func TestUsage(t *testing.T) {
	t.Parallel()
	pid, _ := start(t, t.Context())
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := Poll(ctx, func() bool { return UsageOf(cmd.Process.Pid).Ran > 0 }); err != nil {
		t.Errorf("a busy process ran %+v: %v", UsageOf(cmd.Process.Pid), err)
	}
	if _, err := os.Stat("/proc/self/schedstat"); err == nil && UsageOf(pid).Waited <= 0 {
		t.Errorf("a process that started waited %+v", UsageOf(pid))
	}
	if got := UsageOf(1 << 30); got != (Usage{}) {
		t.Errorf("no process: %+v", got)
	}
}

// TestWatchdog checks a stopped process against the clock of the test.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	pid, _ := start(t, t.Context())
	w := Watchdog{
		MinMisses: 3, Timeout: 3 * time.Second, MaxTimeout: 10 * time.Second,
		Excused: func(_ time.Duration, during Usage) time.Duration { return during.Waited },
	}
	startedAt := time.Now()
	miss := func(second int, usage Usage, want bool) {
		t.Helper()
		now := startedAt.Add(time.Duration(second) * time.Second)
		if silent, hangs := w.Missed(pid, now, now, usage); hangs != want {
			t.Errorf("second %d: hangs %t after %s, want %t", second, hangs, silent, want)
		}
	}
	miss(0, Usage{}, false)
	miss(5, Usage{}, false) // two misses
	w.Replied(pid)
	miss(6, Usage{}, false)
	miss(7, Usage{}, false)
	miss(8, Usage{}, false) // 2 s
	miss(9, Usage{}, true)
	w.Reset()
	miss(20, Usage{Waited: 5 * time.Second}, false)
	miss(21, Usage{Waited: 6 * time.Second}, false)
	miss(24, Usage{Waited: 8 * time.Second}, false) // 1 s without the wait
	miss(29, Usage{Waited: 15 * time.Second}, false)
	miss(30, Usage{Waited: 16 * time.Second}, true) // MaxTimeout
	if got := Cause(3140 * time.Millisecond); got != "no reply for 3.1s" {
		t.Error(got)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := Kill(pid, func(proc string) error {
		raw, err := os.ReadFile(proc + "/stat")
		if err == nil && !strings.HasPrefix(string(raw), strconv.Itoa(pid)+" ") {
			err = errors.New(string(raw))
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	awaitEnd(t, pid) // a stopped process, too
}
