// Package childprocess starts and watches the processes of tunnels: charon and the userspace
// WireGuard processes. They have their own sessions and outlive the agent, so that tunnels forward
// while an agent is replaced. An agent that stops never kills them.
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
	"time"

	"golang.org/x/sys/unix"
)

const (
	// pollInterval separates two checks of a process that starts.
	pollInterval = 5 * time.Millisecond
	// logTail is the end of a log file that an error quotes, bytes.
	logTail = 600
	// MaxLogSize is the size at which TrimLog empties a log file, bytes.
	MaxLogSize = 1 << 20
)

// Command is a process to start.
type Command struct {
	// Name is the name of the process in errors.
	Name string
	Cmd  *exec.Cmd
	// Exec starts Cmd; nil: Cmd.Start.
	Exec func(*exec.Cmd) error
	// Log is the file for the output of the process; empty: the output is discarded. A file
	// that cannot be written does not prevent the start.
	Log string
	// MoreLogs are log files that the process itself writes. Errors quote them, too.
	MoreLogs []string
	// Ready returns nil when the process serves, and an error when ctx is done. It is called in
	// the goroutine of Start.
	Ready func(ctx context.Context) error
	// Timeout bounds Ready.
	Timeout time.Duration
}

// Start starts the process in its own session, in the current network namespace. It returns the
// process id when the process is ready. It kills a process that does not become ready.
func (c Command) Start(ctx context.Context) (pid int, err error) {
	c.Cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if log, err := openLog(c.Log); err == nil {
		defer log.Close()
		c.Cmd.Stdout, c.Cmd.Stderr = log, log
	}
	run := c.Exec
	if run == nil {
		run = (*exec.Cmd).Start
	}
	if err := run(c.Cmd); err != nil {
		return 0, fmt.Errorf("start %s: %w", c.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	// Wait reaps the process when it ends, so it does not stay as a zombie of the agent.
	exited := make(chan error, 1)
	go func() {
		exited <- c.Cmd.Wait()
		cancel()
	}()
	// Ready is called here, because the thread of another goroutine may be in another network
	// namespace.
	err = c.Ready(ctx)
	select {
	case err := <-exited:
		return 0, fmt.Errorf("%s exited at once (%v): %s", c.Name, err, c.lastOutput())
	default:
	}
	if err == nil {
		return c.Cmd.Process.Pid, nil
	}
	err = fmt.Errorf("%s does not reply: %w", c.Name, err)
	if killErr := c.Cmd.Process.Kill(); killErr != nil && !errors.Is(killErr, os.ErrProcessDone) {
		err = errors.Join(err, fmt.Errorf("kill process %d: %w", c.Cmd.Process.Pid, killErr))
	}
	return 0, err
}

// openLog empties a log file. The process appends, so that TrimLog can empty the file again.
func openLog(path string) (*os.File, error) {
	if path == "" {
		return nil, os.ErrNotExist
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
}

// lastOutput returns the end of the process's logs.
func (c Command) lastOutput() string {
	var out []string
	for _, path := range append([]string{c.Log}, c.MoreLogs...) {
		raw, err := os.ReadFile(path)
		if text := strings.TrimSpace(string(raw[max(0, len(raw)-logTail):])); err == nil && text != "" {
			out = append(out, text)
		}
	}
	if len(out) == 0 {
		return "no log"
	}
	return strings.Join(out, "; ")
}

// TrimLog empties a log file that is larger than MaxLogSize. Its writer must append.
func TrimLog(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() <= MaxLogSize {
		return nil
	}
	if err == nil {
		err = os.Truncate(path, 0)
	}
	if err != nil {
		return fmt.Errorf("trim log: %w", err)
	}
	return nil
}

// Poll returns nil when done returns true, and the error of ctx if ctx is done first.
func Poll(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// Kill kills a process if isOurs returns nil for its directory in /proc. It returns nil if the
// process has ended. It uses a pidfd, so a reused id cannot hit another process.
func Kill(pid int, isOurs func(proc string) error) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if err := isOurs("/proc/" + strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}
