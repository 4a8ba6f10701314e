package main

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// accept takes and closes connections to a port of every address, until the
// namespace is closed.
func (s *space) accept(port int) error {
	var listener int
	err := s.inside(func() (err error) {
		listener, err = listenOn(port)
		return err
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// A thread of its own, as it waits in the kernel most of the time.
		runtime.LockOSThread()
		for {
			conn, _, err := unix.Accept(listener)
			if err != nil {
				return
			}
			_ = unix.Close(conn)
		}
	}()
	s.atEnd = append(s.atEnd, func() error {
		err := unix.Shutdown(listener, unix.SHUT_RDWR)
		<-ended
		return errors.Join(err, unix.Close(listener))
	})
	return nil
}

// listenOn gives a socket that listens on a port of every address.
func listenOn(port int) (listener int, err error) {
	listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("make socket: %w", err)
	}
	err = errors.Join(unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(listener, &unix.SockaddrInet4{Port: port}), unix.Listen(listener, 4096))
	if err != nil {
		return 0, errors.Join(fmt.Errorf("listen on port %d: %w", port, err), unix.Close(listener))
	}
	return listener, nil
}

// connect opens count TCP connections one after the other, to the targets in
// turn, each from a source port of its own, and gives the time it took. Each is
// ended with a reset, so that no port waits.
func (s *space) connect(targets []netip.AddrPort, count int) (took time.Duration, err error) {
	addrs := make([]unix.SockaddrInet4, len(targets))
	for i, t := range targets {
		addrs[i] = sockaddr(t)
	}
	err = s.inside(func() error {
		begin := time.Now()
		for i := range count {
			if err := connectOnce(&addrs[i%len(addrs)], 1024+i%64000); err != nil {
				return err
			}
		}
		took = time.Since(begin)
		return nil
	})
	return took, err
}

func sockaddr(a netip.AddrPort) unix.SockaddrInet4 {
	return unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

func connectOnce(to *unix.SockaddrInet4, port int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return fmt.Errorf("set linger: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err != nil {
		return fmt.Errorf("bind port %d: %w", port, err)
	}
	if err := unix.Connect(fd, to); err != nil {
		return fmt.Errorf("connect to %s:%d: %w", netip.AddrFrom4(to.Addr), to.Port, err)
	}
	return nil
}
