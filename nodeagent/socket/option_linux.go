package socket

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

func (o Options) apply(network string, fd int) error {
	if o.Freebind {
		level, option := unix.IPPROTO_IP, unix.IP_FREEBIND
		if strings.HasSuffix(network, "6") {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
		}
		if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
			return fmt.Errorf("set IP_FREEBIND: %w", err)
		}
	}
	if o.Hops > 0 {
		level, option := unix.IPPROTO_IP, unix.IP_TTL
		if strings.HasSuffix(network, "6") {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
		}
		if err := unix.SetsockoptInt(fd, level, option, o.Hops); err != nil {
			return fmt.Errorf("set the hop limit to %d: %w", o.Hops, err)
		}
	}
	if o.Device != "" {
		if err := unix.BindToDevice(fd, o.Device); err != nil {
			return fmt.Errorf("bind to device %s: %w", o.Device, err)
		}
	}
	return nil
}

// Index gives the interface index of a device, 0 when there is none. A socket
// bound to a device is dead once the device was made anew with another index.
func Index(device string) int {
	request, err := unix.NewIfreq(device)
	if device == "" || err != nil {
		return 0
	}
	// One ioctl: net.InterfaceByName would list every link of the host.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return 0
	}
	return int(request.Uint32())
}
