//go:build !linux

package portcheck

import (
	"errors"
	"syscall"
)

// setDontFragment is unsupported: agents run on Linux only. On other systems, hawser reads their
// reports.
func setDontFragment(string, string, syscall.RawConn) error { return errors.ErrUnsupported }
