package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// resubscribe is the pause before a failed subscription is tried again.
const resubscribe = time.Second

// monitored are the groups of kernel events that may concern us.
func monitored() []uint32 {
	return []uint32{
		unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE,
		unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
	}
}

// Monitor puts a token into trigger (a channel of size one) on each event of
// links, addresses, neighbours, routes and rules in the current network
// namespace, and whenever events may have been lost. It returns ctx's error
// when ctx ends.
func Monitor(ctx context.Context, trigger chan<- struct{}) error {
	for {
		if conn, err := subscribe(); err == nil {
			token(trigger) // for what happened while nobody listened
			// A socket that fails is replaced by a new one; what it missed is covered by a token.
			_ = follow(ctx, conn, trigger)
		}
		token(trigger)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(resubscribe):
		}
	}
}

func subscribe() (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, fmt.Errorf("subscribe to kernel events: %w", err)
	}
	for _, group := range monitored() {
		if err := conn.JoinGroup(group); err != nil {
			return nil, errors.Join(fmt.Errorf("subscribe to kernel events of group %d: %w", group, err), conn.Close())
		}
	}
	return conn, nil
}

// follow turns events into tokens until ctx ends or the socket fails.
func follow(ctx context.Context, conn *netlink.Conn, trigger chan<- struct{}) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() {
		if stop() {
			conn.Close()
		}
	}()
	for {
		msgs, err := conn.Receive()
		if errors.Is(err, unix.ENOBUFS) {
			token(trigger)
			continue
		}
		if err != nil {
			return fmt.Errorf("receive kernel events: %w", err)
		}
		for _, m := range msgs {
			if concerns(m) {
				token(trigger)
				break
			}
		}
	}
}

// concerns leaves out the neighbours that the kernel learns by itself, of which
// a busy node has many a second: ours are permanent.
func concerns(m netlink.Message) bool {
	if m.Header.Type != unix.RTM_NEWNEIGH || len(m.Data) < unix.SizeofNdMsg {
		return true
	}
	state := binary.NativeEndian.Uint16(m.Data[8:]) // ndm_state of struct ndmsg, rtnetlink(7)
	return state&unix.NUD_PERMANENT != 0
}

func token(trigger chan<- struct{}) {
	select {
	case trigger <- struct{}{}:
	default:
	}
}
