package kernel

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// routeEventsTimeout is the longest time that a stamp is valid. The kernel reports a removed
// address just before it removes the routes with that source, and does not report those
// routes. A read between the two would miss their removal.
const routeEventsTimeout = 10 * time.Second

// routeEvents counts the kernel's events of routes, and of devices and addresses, whose
// removal also removes routes without an event for each. The kernel puts an event into the
// socket before the change returns to its author.
type routeEvents struct {
	fd    int
	count uint64
	buf   []byte
}

// openRouteEvents subscribes in the current network namespace.
func openRouteEvents() (*routeEvents, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("subscribe to route events: %w", err)
	}
	var groups uint32
	for _, g := range []int{
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE,
		unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_NEXTHOP,
	} {
		groups |= 1 << (g - 1)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to route events: %w", err), unix.Close(fd))
	}
	return &routeEvents{fd: fd, buf: make([]byte, 1)}, nil
}

func (e *routeEvents) close() error { return unix.Close(e.fd) }

// stamp returns a text that differs from the last one if events arrived or were lost since.
func (e *routeEvents) stamp(now time.Time) (string, error) {
	for {
		// Reading one byte removes a whole message; its content does not matter.
		_, _, err := unix.Recvfrom(e.fd, e.buf, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return fmt.Sprintf("%d at %d", e.count, now.UnixNano()/int64(routeEventsTimeout)), nil
		case errors.Is(err, unix.EINTR):
		case err == nil, errors.Is(err, unix.ENOBUFS):
			e.count++
		default:
			return "", fmt.Errorf("read route events: %w", err)
		}
	}
}
