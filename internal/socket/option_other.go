//go:build !linux

package socket

import "errors"

// The agent runs on Linux only, but hawser reads its status on other systems, too.
func (Options) apply(string, int) error { return errors.ErrUnsupported }

// DeviceIndex returns 0 outside of Linux.
func DeviceIndex(string) int { return 0 }

// DeviceWatch reports nothing outside of Linux.
type DeviceWatch struct{}

// WatchDevices never calls changed outside of Linux.
func WatchDevices(func()) *DeviceWatch { return &DeviceWatch{} }

// Close does nothing outside of Linux.
func (*DeviceWatch) Close() error { return nil }

func controlLength() int { return 0 }

func inDeviceIndex([]byte) int { return 0 }

// DeviceName returns an empty name outside of Linux.
func DeviceName(int) string { return "" }

func sendOnly(string, int) error { return errors.ErrUnsupported }
