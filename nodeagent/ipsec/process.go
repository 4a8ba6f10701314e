package ipsec

import (
	"bytes"
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
)

// Stop ends our own charon, which tells all peers, and waits until it is gone. The
// host's goes on.
func (c *Charon) Stop(context.Context) error {
	if !c.Own() {
		return nil
	}
	process, err := c.process()
	if err != nil {
		return err
	}
	if process < 0 {
		_ = os.Remove(c.Socket()) // of one that was killed
		return nil
	}
	defer unix.Close(process)
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := send(process, signal); err != nil {
			return err
		}
		if gone(process, stopTimeout) {
			_ = os.Remove(c.Socket())
			return nil
		}
	}
	return errors.New("end charon: it goes on")
}

// kill ends our own charon at once; all that it holds in the kernel goes with it.
func (c *Charon) kill() error {
	process, err := c.process()
	if err != nil || process < 0 {
		return err
	}
	defer unix.Close(process)
	return send(process, unix.SIGKILL)
}

func send(process int, signal unix.Signal) error {
	if err := unix.PidfdSendSignal(process, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end charon: %w", err)
	}
	return nil
}

// process opens our own charon's process; -1 when there is none.
func (c *Charon) process() (fd int, err error) {
	fd, _, err = c.find()
	return fd, err
}

// worked gives how much processor time our own charon had, in ticks of the kernel;
// 0 = not known.
func (c *Charon) worked() int {
	fd, pid, err := c.find()
	if err != nil || fd < 0 {
		return 0
	}
	defer unix.Close(fd)
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// proc_pid_stat(5): behind the name, which may hold anything, the 12th and 13th
	// fields are the time in the program and in the kernel.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	program, _ := strconv.Atoi(fields[11])
	kernel, _ := strconv.Atoi(fields[12])
	return program + kernel
}

// find opens the process that works in charon's folder, and gives its number; -1 when
// there is none. One that hangs cannot be asked through its socket.
func (c *Charon) find() (fd, pid int, err error) {
	dir, err := os.Stat(c.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, 0, nil
	}
	if err != nil {
		return -1, 0, fmt.Errorf("find charon: %w", err)
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return -1, 0, fmt.Errorf("find charon: %w", err)
	}
	for _, path := range all {
		cwd, err := os.Stat(path + "/cwd")
		if err != nil || !os.SameFile(cwd, dir) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(path))
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			if exe, err := os.Readlink(path + "/exe"); err == nil && strings.HasPrefix(filepath.Base(exe), "charon") {
				return fd, pid, nil
			}
			_ = unix.Close(fd)
		}
	}
	return -1, 0, nil
}

// gone waits for the end of a process.
func gone(process int, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		left := time.Until(deadline)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, int(max(left, 0)/time.Millisecond))
		if n > 0 || left <= 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}
