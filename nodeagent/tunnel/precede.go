package tunnel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// nice is the nice value of a tunnel process (sched(7)).
const nice = -10

// precede lets this process go first where processors are short: what waits in it are packets of
// every pod, and of the links' probes. Without CAP_SYS_NICE, as in the agent's pod, it gives an
// error and changes nothing. Threads that begin later take the value from those that begin them.
func precede() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("raise priority: %w", err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return fmt.Errorf("raise priority of thread %s: %w", thread.Name(), err)
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, nice); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("raise priority of thread %d: %w", id, err)
		}
	}
	// Where sessions share processors as groups, the values above count within the session only.
	err = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}
