package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/lab/netnsexec"
)

// Down removes a lab completely: processes, namespaces with their links, mounts and files. It also
// removes a lab whose daemon or up was killed. It reports whether the lab existed.
func Down(ctx context.Context, l Layout) (bool, error) {
	if os.Geteuid() != 0 {
		return false, errors.New("the lab removes network namespaces: run it as root")
	}
	_, err := readConfig(l)
	if errors.Is(err, ErrNoLab) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	unlock, err := l.lock()
	if err != nil {
		return true, err
	}
	defer unlock()
	return true, l.remove(ctx)
}

// remove implements Down. The caller holds the lock.
func (l Layout) remove(ctx context.Context) error {
	config, err := readConfig(l)
	if err != nil {
		return err
	}
	if err := l.sweep(ctx, config); err != nil {
		return err
	}
	// Mounts below the lab's directory, innermost first.
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	slices.Reverse(lines)
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[4], l.Dir+"/") {
			continue
		}
		if err := unix.Unmount(fields[4], unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", fields[4], err)
		}
	}
	if err := os.RemoveAll(l.Dir); err != nil {
		return fmt.Errorf("remove directory of the lab: %w", err)
	}
	for _, parent := range config.Parents {
		_ = os.Remove(parent) // fails if it is not empty
	}
	return nil
}

// sweep removes the processes and namespaces of a lab that has no daemon.
func (l Layout) sweep(ctx context.Context, c Config) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := l.killAll(ctx, c); err != nil {
		return err
	}
	if err := netnsexec.RemoveAll(l.namespaces()); err != nil {
		return err
	}
	if err := os.Remove(l.Socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove socket of the lab: %w", err)
	}
	return nil
}

// killAll kills the daemon first, so that it restarts nothing. Then it kills all processes in the
// lab's namespaces and all processes with the lab's mark.
func (l Layout) killAll(ctx context.Context, c Config) error {
	if raw, err := os.ReadFile(l.daemon()); err == nil {
		var daemon netnsexec.Process
		if json.Unmarshal(raw, &daemon) == nil && daemon.Alive() && daemon.PID != os.Getpid() {
			if err := netnsexec.Kill(ctx, []netnsexec.Process{daemon}); err != nil {
				return err
			}
		}
	}
	inodes := netnsexec.Inodes(l.namespaces())
	for {
		left := netnsexec.Processes(inodes, markEnv+"="+c.ID)
		if len(left) == 0 {
			return nil
		}
		if err := netnsexec.Kill(ctx, left); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("end the lab's processes: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}
