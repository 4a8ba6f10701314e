//go:build !linux

package socket

import "errors"

// The agent runs on Linux alone; hawser reads its status elsewhere, too.
func (Options) apply(string, int) error { return errors.ErrUnsupported }

// Index gives no device outside of Linux.
func Index(string) int { return 0 }

func controlLength() int { return 0 }

func arrivedBy([]byte) int { return 0 }

// Device gives no device outside of Linux.
func Device(int) string { return "" }

func sendOnly(string, int) error { return errors.ErrUnsupported }
