package kernel

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// journalTrust is how long a stamp holds at most. The kernel reports a removed
// address just before it drops the routes that had it as their source, without
// a word about those: who read in between would never learn of it.
const journalTrust = 10 * time.Second

// journal counts what the kernel reports about routes, and of links and addresses,
// which take routes along without telling of each. The kernel puts a message
// into the socket before the change returns to its author.
type journal struct {
	fd    int
	count uint64
	buf   []byte
}

// openJournal begins to listen in the current network namespace.
func openJournal() (*journal, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open journal of routes: %w", err)
	}
	var groups uint32
	for _, g := range []int{
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE,
		unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_NEXTHOP,
	} {
		groups |= 1 << (g - 1)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(fmt.Errorf("open journal of routes: %w", err), unix.Close(fd))
	}
	return &journal{fd: fd, buf: make([]byte, 1)}, nil
}

func (j *journal) close() error { return unix.Close(j.fd) }

// stamp differs from the last one when anything was told since, or was lost.
func (j *journal) stamp(now time.Time) (string, error) {
	for {
		// One byte is enough to take a message away; what it says does not matter.
		_, _, err := unix.Recvfrom(j.fd, j.buf, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return fmt.Sprintf("%d at %d", j.count, now.UnixNano()/int64(journalTrust)), nil
		case errors.Is(err, unix.EINTR):
		case err == nil, errors.Is(err, unix.ENOBUFS):
			j.count++
		default:
			return "", fmt.Errorf("read journal of routes: %w", err)
		}
	}
}
