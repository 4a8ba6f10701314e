package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/trigger"
)

// resubscribe is the pause before a failed subscription is retried.
const resubscribe = time.Second

// Monitor fires the trigger on each event of devices, addresses, neighbours, routes and rules in
// the current network namespace, and whenever events may have been lost. It returns ctx's error
// when ctx is done.
func Monitor(ctx context.Context, trigger trigger.Trigger) error {
	for {
		// A new socket replaces the failed one; the trigger covers the events it missed.
		_ = listen(ctx, trigger)
		trigger.Fire()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(resubscribe):
		}
	}
}

// listen fires the trigger on events until ctx is done or the socket fails.
func listen(ctx context.Context, trigger trigger.Trigger) error {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return fmt.Errorf("subscribe to kernel events: %w", err)
	}
	// The groups of the objects that Hawser manages.
	for _, group := range []uint32{
		unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE,
		unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
	} {
		if err := conn.JoinGroup(group); err != nil {
			return errors.Join(fmt.Errorf("subscribe to kernel events of group %d: %w", group, err), conn.Close())
		}
	}
	trigger.Fire() // for events before the subscription
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() {
		if stop() {
			conn.Close()
		}
	}()
	for {
		msgs, err := conn.Receive()
		if errors.Is(err, unix.ENOBUFS) {
			trigger.Fire()
			continue
		}
		if err != nil {
			return fmt.Errorf("receive kernel events: %w", err)
		}
		for _, m := range msgs {
			if isRelevant(m) {
				trigger.Fire()
				break
			}
		}
	}
}

// isRelevant filters out neighbours that the kernel learns: a busy node has many per second, and
// ours are permanent.
func isRelevant(m netlink.Message) bool {
	if m.Header.Type != unix.RTM_NEWNEIGH || len(m.Data) < unix.SizeofNdMsg {
		return true
	}
	state := binary.NativeEndian.Uint16(m.Data[8:]) // ndm_state of struct ndmsg, rtnetlink(7)
	return state&unix.NUD_PERMANENT != 0
}
