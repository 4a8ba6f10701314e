package traffic

import (
	"fmt"
	"os"
)

// autogroup is where the kernel keeps how much this session is preferred (sched(7)).
const autogroup = "/proc/self/autogroup"

// RaisePriority lets this session have the processors first, until the function that it
// gives is called: clients and servers stand for hosts of their own, and a sender
// that waits for those whom it measures measures itself. The programs of the lab
// are in sessions of their own. A kernel that knows no such groups is left alone.
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
