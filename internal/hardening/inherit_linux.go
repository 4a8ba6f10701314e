package hardening

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// CloseOnExec marks all file descriptors except the standard ones, so that programs that this
// process starts do not inherit them. A daemon that outlives its caller would otherwise keep the
// caller's lock file locked and its pipes open.
func CloseOnExec() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close inherited file descriptors on exec: %w", err)
	}
	return nil
}
