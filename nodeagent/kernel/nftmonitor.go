package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/nodeagent/desired"
)

const (
	nftMulticast   = 7 // NFNLGRP_NFTABLES
	nftResubscribe = time.Second
)

// NFTMonitor rings whenever table inet hawser was changed, by whomever (also by this
// process). What changed is not told: look again. The monitor subscribes anew after
// an error, such as events that the kernel had to drop, and rings then too. It ends
// with ctx and gives its error.
func NFTMonitor(ctx context.Context, opts NFTOptions, trigger bell.Bell) error {
	for {
		err := nftSubscribed(ctx, opts, trigger.Ring)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		trigger.Ring()
		if errors.Is(err, unix.ENOBUFS) {
			continue // nothing is wrong with the subscription
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(nftResubscribe):
		}
	}
}

// nftSubscribed calls changed for each transaction that touches our table,
// until ctx ends or something fails.
func nftSubscribed(ctx context.Context, opts NFTOptions, changed func()) error {
	s, err := nftDial(opts.NetNS)
	if err != nil {
		return err
	}
	defer s.close()
	if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, nftMulticast); err != nil {
		return fmt.Errorf("subscribe to nf_tables events: %w", err)
	}
	if err := unix.SetNonblock(s.fd, true); err != nil {
		return fmt.Errorf("subscribe to nf_tables events: %w", err)
	}
	fd, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("subscribe to nf_tables events: %w", err)
	}
	// As a file the socket waits in the runtime's poller, where closing it ends
	// a read.
	file := os.NewFile(uintptr(fd), "nf_tables events")
	defer file.Close()
	stop := context.AfterFunc(ctx, func() { file.Close() })
	defer stop()
	for {
		n, err := file.Read(s.buf)
		if err != nil {
			return fmt.Errorf("read nf_tables events: %w", err)
		}
		if nftTouchesOurs(s.buf[:n]) {
			changed()
		}
	}
}

// nftTouchesOurs reports whether a datagram of events has one of our table. Its
// name is attribute 1 of every message about a table or what is in it.
func nftTouchesOurs(b []byte) bool {
	name := append([]byte(desired.TableName), 0)
	for len(b) >= nftHeader+nftGenHeader {
		size := int(binary.NativeEndian.Uint32(b))
		if size < nftHeader+nftGenHeader || size > len(b) {
			return true // not understood: let it be looked at
		}
		if b[nftHeader] == unix.NFPROTO_INET &&
			bytes.Equal(nftFind(b[nftHeader+nftGenHeader:size], unix.NFTA_TABLE_NAME), name) {
			return true
		}
		b = b[min(nftAlign(size), len(b)):]
	}
	return false
}
