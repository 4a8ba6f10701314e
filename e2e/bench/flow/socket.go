// Package flow is traffic between pods that tells when it stood still, and for
// how long. All of it runs in this process: a socket stays in the network
// namespace that it was made in, so one clock times both ends and nothing has to
// be started in a pod.
package flow

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/lab/netspace"
)

// Place is the file that pins a pod's network namespace.
type Place string

// listenTCP listens on all addresses of the pod.
func (p Place) listenTCP(port uint16) (listener net.Listener, err error) {
	err = netspace.Do(string(p), func() (err error) {
		listener, err = net.Listen("tcp4", netip.AddrPortFrom(netip.IPv4Unspecified(), port).String())
		return err
	})
	return listener, err
}

func (p Place) listenUDP(port uint16) (conn *net.UDPConn, err error) {
	err = netspace.Do(string(p), func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: int(port)})
		return err
	})
	return conn, err
}

func (p Place) dialUDP(to netip.AddrPort) (conn *net.UDPConn, err error) {
	err = netspace.Do(string(p), func() (err error) {
		conn, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(to))
		return err
	})
	return conn, err
}

// dialTCP connects. Only the making of the socket happens on a thread in the
// namespace, so that a thousand of them wait without a thousand threads.
func (p Place) dialTCP(to netip.AddrPort, limit time.Duration) (*net.TCPConn, error) {
	return p.dialTCPFrom(0, to, limit)
}

// dialTCPFrom connects from a port; 0 = any.
func (p Place) dialTCPFrom(port int, to netip.AddrPort, limit time.Duration) (*net.TCPConn, error) {
	var fd int
	err := netspace.Do(string(p), func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open socket in %s: %w", p, err)
	}
	file := os.NewFile(uintptr(fd), "tcp:"+to.String())
	defer file.Close()
	if port != 0 {
		if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, &unix.SockaddrInet4{Port: port})); err != nil {
			return nil, fmt.Errorf("bind port %d: %w", port, err)
		}
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return nil, fmt.Errorf("connect %s: %w", to, err)
	}
	made, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("connect %s: %w", to, err)
	}
	conn := made.(*net.TCPConn)
	if err := connected(conn, limit); err != nil {
		return nil, errors.Join(fmt.Errorf("connect %s: %w", to, err), conn.Close())
	}
	return conn, nil
}

// connected waits until the handshake has ended.
func connected(conn *net.TCPConn, limit time.Duration) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		if err != nil {
			failed = err
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	return errors.Join(err, failed, conn.SetDeadline(time.Time{}))
}
