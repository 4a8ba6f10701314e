package socket

import (
	"encoding/binary"
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
	if o.HopLimit > 0 {
		level, option := unix.IPPROTO_IP, unix.IP_TTL
		if strings.HasSuffix(network, "6") {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
		}
		if err := unix.SetsockoptInt(fd, level, option, o.HopLimit); err != nil {
			return fmt.Errorf("set the hop limit to %d: %w", o.HopLimit, err)
		}
	}
	if o.DontFragment {
		level, discover, probe, packetInfo := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE, unix.IP_PKTINFO
		if strings.HasSuffix(network, "6") {
			level, discover, probe, packetInfo = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE, unix.IPV6_RECVPKTINFO
		}
		if err := unix.SetsockoptInt(fd, level, discover, probe); err != nil {
			return fmt.Errorf("forbid to split packets: %w", err)
		}
		if err := unix.SetsockoptInt(fd, level, packetInfo, 1); err != nil {
			return fmt.Errorf("ask for the interface of packets: %w", err)
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) // if it fails, the host's default also works
	}
	if o.Device != "" {
		if err := unix.BindToDevice(fd, o.Device); err != nil {
			return fmt.Errorf("bind to device %s: %w", o.Device, err)
		}
	}
	return nil
}

// DeviceIndex returns the interface index of a device; 0 if absent. A socket that is bound to a
// device no longer works after the device is recreated with another index.
func DeviceIndex(device string) int {
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

// receiveBuffer is the size of the receive buffer of a socket with DontFragment, in bytes: a few
// hundred packets of full size (socket(7), SO_RCVBUFFORCE).
const receiveBuffer = 1 << 20

// controlLength returns the buffer size for the control message of a datagram: address and
// interface.
func controlLength() int { return unix.CmsgSpace(unix.SizeofInet6Pktinfo) }

// inDeviceIndex returns the index of the interface that received a datagram; 0 if unknown.
func inDeviceIndex(control []byte) int {
	for len(control) > 0 {
		head, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return 0
		}
		switch {
		case head.Level == unix.IPPROTO_IP && head.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			return int(binary.NativeEndian.Uint32(data))
		case head.Level == unix.IPPROTO_IPV6 && head.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			return int(binary.NativeEndian.Uint32(data[16:]))
		}
		control = rest
	}
	return 0
}

// DeviceName returns the name of the interface with an index; empty if absent.
func DeviceName(index int) string {
	request, err := unix.NewIfreq("")
	if index == 0 || err != nil {
		return ""
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }()
	request.SetUint32(uint32(index))
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFNAME, request); err != nil {
		return ""
	}
	return request.Name()
}

// sendOnly configures a raw UDP socket (raw(7)) to receive nothing, because it would receive every
// datagram of the device. It also makes the kernel compute checksums over IPv6.
func sendOnly(network string, fd int) error {
	dropAll := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &dropAll[0]})
	if err == nil && strings.HasPrefix(network, "ip6") {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_CHECKSUM, 6)
	}
	if err != nil {
		return fmt.Errorf("prepare a socket past the routes: %w", err)
	}
	return nil
}
