//go:build !linux

package portcheck

import (
	"errors"
	"syscall"
)

// neverSplit: agents run on Linux alone; elsewhere hawser only reads their reports.
func neverSplit(string, string, syscall.RawConn) error { return errors.ErrUnsupported }
