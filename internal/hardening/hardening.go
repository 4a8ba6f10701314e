// Package hardening protects the memory of a process with keys from other processes of the same
// user.
package hardening

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// HardenProcess disables core dumps, and lets no user except root read the memory of this process
// or trace it. Child processes inherit only the disabled core dumps. It needs no privilege.
func HardenProcess() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
	if err := denyTracing(); err != nil {
		return fmt.Errorf("forbid others to read this process: %w", err)
	}
	return nil
}
