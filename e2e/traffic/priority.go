package traffic

import (
	"fmt"
	"os"
)

// autogroup is the file with the nice value of this session (sched(7)).
const autogroup = "/proc/self/autogroup"

// RaisePriority raises the scheduling priority of this session until undo is called. Clients and
// servers represent separate hosts. A sender that waits for a processor behind the measured
// programs would measure itself. The lab's programs run in other sessions. RaisePriority does
// nothing on kernels without autogroups.
func RaisePriority() (undo func() error) {
	before, err := os.ReadFile(autogroup)
	if err != nil {
		return func() error { return nil }
	}
	name, nice := "", 0
	if _, err := fmt.Sscanf(string(before), "%s nice %d", &name, &nice); err != nil || setAutogroup(-10) != nil {
		return func() error { return nil }
	}
	return func() error { return setAutogroup(nice) }
}

func setAutogroup(nice int) error {
	if err := os.WriteFile(autogroup, fmt.Append(nil, nice), 0); err != nil {
		return fmt.Errorf("set the nice value of this session: %w", err)
	}
	return nil
}
