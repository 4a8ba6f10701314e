package portcheck

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// setDontFragment forbids fragmentation of datagrams, and ignores the cached path MTU.
func setDontFragment(network, _ string, raw syscall.RawConn) error {
	level, option, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	if network == "udp6" {
		level, option, value = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	var failed error
	err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, value) })
	return errors.Join(err, failed)
}
