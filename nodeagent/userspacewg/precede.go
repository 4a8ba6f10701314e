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

// nice is the nice value of a tunnel process (sched(7)).
const nice = -10

// start starts a process that goes first where processors are short: what waits in it are packets
// of every pod, and of the links' probes. It begins with the value of the thread that starts it,
// as all its threads then do: one that it began while it raised its own could be missed. Without
// CAP_SYS_NICE, as in the agent's pod, it is a process like others.
func start(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	value, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
	if err == nil && unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice) == nil {
		// The system call gives 20 less the value. Nobody is refused to come later.
		defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 20-value) }()
	}
	return cmd.Start()
}

// precede does the same for this process's session: where sessions share processors as groups,
// nice values count within a session only.
func precede() error {
	err := os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}
