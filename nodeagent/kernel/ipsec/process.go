package ipsec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/kernel/childprocess"
)

// Stop stops our own charon, which notifies all peers, and waits until it has ended. The host's
// charon continues.
func (c *Charon) Stop(context.Context) error {
	if !c.Managed() {
		return nil
	}
	process, err := c.process()
	if err != nil {
		return err
	}
	if process < 0 {
		_ = os.Remove(c.Socket()) // left by a killed charon
		return nil
	}
	defer unix.Close(process)
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := sendSignal(process, signal); err != nil {
			return err
		}
		if awaitExit(process, stopTimeout) {
			_ = os.Remove(c.Socket())
			return nil
		}
	}
	return errors.New("stop charon: it is still running")
}

// pid returns the ID of our own charon's process; 0 if absent.
func (c *Charon) pid() (int, error) {
	fd, pid, err := c.openProcess()
	if err != nil || fd < 0 {
		return 0, err
	}
	return pid, unix.Close(fd)
}

// killHung kills our own charon. Its kernel state disappears with it.
func (c *Charon) killHung(pid int) error {
	return childprocess.Kill(pid, c.isOurs)
}

// isOurs returns nil if a directory in /proc belongs to our own charon: its working directory is
// charon's directory.
func (c *Charon) isOurs(proc string) error {
	dir, err := os.Stat(c.Dir)
	if err != nil {
		return err
	}
	cwd, err := os.Stat(proc + "/cwd")
	if err != nil {
		return err
	}
	exe, err := os.Readlink(proc + "/exe")
	if err != nil {
		return err
	}
	if !os.SameFile(cwd, dir) || !strings.HasPrefix(filepath.Base(exe), "charon") {
		return fmt.Errorf("%s runs in another directory than %s", exe, c.Dir)
	}
	return nil
}

func sendSignal(process int, signal unix.Signal) error {
	if err := unix.PidfdSendSignal(process, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stop charon: %w", err)
	}
	return nil
}

// process opens our own charon's process; -1 if absent.
func (c *Charon) process() (fd int, err error) {
	fd, _, err = c.openProcess()
	return fd, err
}

// openProcess opens our own charon's process and returns its ID. fd is -1 if it is absent. It does
// not use the socket: a hung process does not reply.
func (c *Charon) openProcess() (fd, pid int, err error) {
	if _, err := os.Stat(c.Dir); errors.Is(err, fs.ErrNotExist) {
		return -1, 0, nil
	} else if err != nil {
		return -1, 0, fmt.Errorf("find charon: %w", err)
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return -1, 0, fmt.Errorf("find charon: %w", err)
	}
	for _, path := range all {
		if c.isOurs(path) != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(path))
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			if c.isOurs(path) == nil { // still the same process
				return fd, pid, nil
			}
			_ = unix.Close(fd)
		}
	}
	return -1, 0, nil
}

// awaitExit waits until a process has exited. It reports false after the timeout.
func awaitExit(process int, timeout time.Duration) bool {
	deadline := time.Now().Add(timeout)
	for {
		remaining := time.Until(deadline)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, int(max(remaining, 0)/time.Millisecond))
		if n > 0 || remaining <= 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}
