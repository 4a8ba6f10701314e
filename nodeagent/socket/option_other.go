//go:build !linux

package socket

import "errors"

// The agent runs on Linux alone; hawser reads its status elsewhere, too.
func (Options) apply(string, int) error { return errors.ErrUnsupported }

// Index gives no device outside of Linux.
func Index(string) int { return 0 }
