// Package hardening protects the memory of a process with keys from other processes of the same
// user.
package hardening

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// HardenProcess prevents every user except root from reading the memory of this process
// and from tracing it, and disables core dumps. Child processes inherit only the latter. It
// needs no privilege.
func HardenProcess() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
	if err := hide(); err != nil {
		return fmt.Errorf("forbid others to read this process: %w", err)
	}
	return nil
}
