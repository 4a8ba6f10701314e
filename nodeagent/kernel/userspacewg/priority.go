package userspacewg

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// niceValue is the nice value of a tunnel process (sched(7)).
const niceValue = -10

// startWithPriority starts a process with a higher priority than others: packets of every pod and
// link probes wait in it. The process inherits the nice value of the thread that starts it, and so
// do all its threads: raising its own value later could miss a new thread. Without CAP_SYS_NICE,
// as in the agent's pod, the priority is the normal one.
func startWithPriority(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	value, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
	if err == nil && unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), niceValue) == nil {
		// The system call returns 20 minus the value. Lowering a priority needs no
		// capability.
		defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 20-value) }()
	}
	return cmd.Start()
}

// raisePriority raises the priority of this process's session: with autogroups (sched(7)), nice
// values count within a session only.
func raisePriority() error {
	err := os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(niceValue)), 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}
