package main

import (
	"context"
	"errors"
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

// TestNsexecEndsWithSIGTERM tests that SIGTERM ends a program that has not entered its namespace
// yet.
func TestNsexecEndsWithSIGTERM(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "net") // opening it blocks until a writer opens it
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "hawser", "lab", "nsexec", "--net", fifo, "--", "true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for !opens(t, cmd.Process.Pid) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("ended with %v, not with SIGTERM", err)
	}
}

// opens reports whether a thread of a process waits for the other end of a FIFO.
func opens(t *testing.T, pid int) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "wchan"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(raw), "wait_for_partner") {
			return true
		}
	}
	return false
}
