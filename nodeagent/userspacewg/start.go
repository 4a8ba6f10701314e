package userspacewg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// socketDir is where wgctrl looks for the sockets of userspace devices; neither
// it nor wireguard-go can be told another place.
const socketDir = "/var/run/wireguard"

const (
	startTimeout = 10 * time.Second     // until a process that was started answers
	pollInterval = 5 * time.Millisecond // between two looks whether it does
)

// Launcher starts the processes: this executable with the arguments
// "wireguard NAME", whose main must call Serve.
type Launcher struct {
	// LogDir gets NAME.log with the process's errors; when it is empty or cannot
	// be written, they are lost.
	LogDir string
}

// Start starts the process of a device in the current network namespace and
// returns when its control socket answers. The process is in a session of its
// own and goes on when the caller ends.
func (l Launcher) Start(ctx context.Context, name string) error {
	if err := l.awaitFree(ctx, name); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own executable: %w", err)
	}
	cmd := exec.Command(self, "wireguard", name)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if log := l.openLog(name); log != nil {
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
	}
	if err := start(cmd); err != nil {
		return fmt.Errorf("start %s wireguard %s: %w", self, name, err)
	}
	ended := make(chan error, 1)
	// Waits for as long as the process lives, so that it never stays behind as a
	// zombie of a long-running agent; it ends with either of the two.
	go func() { ended <- cmd.Wait() }()
	if err := l.await(ctx, name, ended); err != nil {
		return errors.Join(err, kill(cmd.Process))
	}
	return nil
}

// awaitFree waits for the end of an earlier process, whose link is gone already.
func (l Launcher) awaitFree(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for l.Alive(name) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("another process serves %s, perhaps in another network namespace: %w", socketPath(name), ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

func socketPath(name string) string { return filepath.Join(socketDir, name+".sock") }

// openLog gives nil when there is no place for a log: a tunnel without one is
// better than no tunnel.
func (l Launcher) openLog(name string) *os.File {
	if l.LogDir == "" || os.MkdirAll(l.LogDir, 0o755) != nil {
		return nil
	}
	// Each start begins a new log, so it never grows without end.
	f, err := os.Create(filepath.Join(l.LogDir, name+".log"))
	if err != nil {
		return nil
	}
	return f
}

func (l Launcher) await(ctx context.Context, name string, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("wireguard process of %s ended at once (%v): %s", name, err, l.lastWords(name))
		case <-ctx.Done():
			return fmt.Errorf("wireguard process of %s does not answer: %w", name, ctx.Err())
		case <-tick.C:
			if l.Alive(name) && isLink(name) {
				return nil
			}
		}
	}
}

func isLink(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

func (l Launcher) lastWords(name string) string {
	const most = 400
	raw, err := os.ReadFile(filepath.Join(l.LogDir, name+".log"))
	if l.LogDir == "" || err != nil {
		return "no log"
	}
	return string(raw[max(0, len(raw)-most):])
}

func kill(p *os.Process) error {
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill process %d: %w", p.Pid, err)
	}
	return nil
}

// Alive reports whether a process answers on the device's control socket.
func (Launcher) Alive(name string) bool {
	c, err := net.DialTimeout("unix", socketPath(name), time.Second)
	if err != nil {
		return false
	}
	return c.Close() == nil
}
