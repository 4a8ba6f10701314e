package ipsec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// roomiest is how many bytes charon's sockets hold of what it did not read yet.
// The kernel counts some 800 for a small packet, and by default holds 208 KiB:
// what comes within a quarter of a second at 1000 packets a second, for which a
// process may well have to wait on a machine that is busy. WireGuard's processes
// have as much.
const roomiest = 7 << 20

// widen gives the UDP sockets of our own charon room. There is no setting for
// it, so they are borrowed from the process for a moment.
func widen(pid int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process of charon: %w", err)
	}
	defer unix.Close(process)
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list sockets of charon: %w", err)
	}
	var errs []error
	for _, e := range entries {
		what, err := os.Readlink(filepath.Join(dir, e.Name()))
		number, bad := strconv.Atoi(e.Name())
		if err == nil && bad == nil && strings.HasPrefix(what, "socket:") {
			errs = append(errs, widenOne(process, number))
		}
	}
	return errors.Join(errs...)
}

// widenOne widens one socket, if it is one of UDP.
func widenOne(process, number int) error {
	fd, err := unix.PidfdGetfd(process, number, 0)
	if errors.Is(err, unix.EBADF) {
		return nil // closed since
	}
	if err != nil {
		return fmt.Errorf("borrow socket %d of charon: %w", number, err)
	}
	defer unix.Close(fd)
	if protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || protocol != unix.IPPROTO_UDP {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, roomiest); err != nil {
		return fmt.Errorf("widen socket %d of charon: %w", number, err)
	}
	return nil
}
