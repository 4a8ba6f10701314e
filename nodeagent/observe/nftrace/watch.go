package nftrace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// receiveBuffer is the size of the receive buffer for trace messages, in bytes.
const receiveBuffer = 4 << 20

// maxSteps limits the steps of a capture. A packet has about thirty steps.
const maxSteps = 200_000

// Capture traces packets for a duration, in the network namespace of the calling thread. It returns
// their steps and the actual duration. It needs CAP_NET_ADMIN and Linux 5.12.
func Capture(ctx context.Context, filter Filter, duration time.Duration) (steps []Step, lasted time.Duration, err error) {
	events, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("open netfilter socket: %w", err)
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	if err := events.JoinGroup(unix.NFNLGRP_NFTRACE); err != nil {
		return nil, 0, fmt.Errorf("join netlink group of traces: %w", err)
	}
	_ = events.SetReadBuffer(receiveBuffer) // the kernel may set a smaller size
	owner, err := nftables.Dial(0)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, owner.Close()) }() // then the kernel deletes the table
	if err := install(owner, filter); err != nil {
		return nil, 0, err
	}
	start := time.Now()
	stop := context.AfterFunc(ctx, func() { _ = events.SetReadDeadline(time.Now()) })
	defer stop()
	if err := events.SetReadDeadline(start.Add(duration)); err != nil {
		return nil, 0, fmt.Errorf("trace packets: %w", err)
	}
	steps, err = read(events, start)
	return steps, time.Since(start), errors.Join(err, ctx.Err())
}

// install creates the table with the rules of a filter.
func install(owner *nftables.Conn, filter Filter) error {
	err := owner.Commit(filter.batch())
	// EPERM: another socket owns the table (or CAP_NET_ADMIN is missing).
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("add table inet %s (does another process trace packets now?): %w", Table, err)
	}
	if err != nil {
		return fmt.Errorf("add table inet %s (Linux 5.12 or later): %w", Table, err)
	}
	return nil
}

func read(events *netlink.Conn, start time.Time) ([]Step, error) {
	links := map[uint32]string{}
	names := func(index uint32) string {
		if index == 0 {
			return ""
		}
		if _, ok := links[index]; !ok {
			links[index] = fmt.Sprintf("interface %d", index)
			if link, err := net.InterfaceByIndex(int(index)); err == nil {
				links[index] = link.Name
			}
		}
		return links[index]
	}
	var steps []Step
	for len(steps) < maxSteps {
		messages, err := events.Receive()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return steps, nil
		case errors.Is(err, unix.ENOBUFS): // the kernel lost messages under load
			continue
		case err != nil:
			return nil, fmt.Errorf("trace packets: %w", err)
		}
		for _, m := range messages {
			step, err := decode(m.Data, names)
			if err != nil {
				return nil, err
			}
			step.At = time.Since(start)
			steps = append(steps, step)
		}
	}
	return steps, nil
}
