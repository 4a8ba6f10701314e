// Package hardening keeps other processes of the same user out of one that holds keys.
package hardening

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// HardenProcess makes that nobody but root reads the memory of this process or traces
// it, and that it leaves no core dump. Programs that it starts are not covered,
// apart from core dumps. It needs no privilege.
func HardenProcess() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
	if err := hide(); err != nil {
		return fmt.Errorf("forbid others to read this process: %w", err)
	}
	return nil
}
