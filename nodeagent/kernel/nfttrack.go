package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/nodeagent/desired"
)

const (
	nftMulticast = 7 // NFNLGRP_NFTABLES
	// nftEventSpace is how many bytes of events may wait: a transaction of 16384
	// elements reports each of them.
	nftEventSpace = 1 << 24
)

// nftTrack tells which generations of the ruleset changed our table, so that what
// others do in theirs (kube-proxy, at each change of a service) is no reason to read
// ours again. The kernel reports each transaction to those who subscribed before its
// commit ends: first of each object, then of the new generation (nf_tables_commit). So
// what is not read here yet is not long over.
type nftTrack struct {
	opts    NFTOptions
	changed bell.Bell // rung when somebody else changed our table, and when that is not known

	mu      sync.Mutex
	socket  *nftSocket      // nil = not subscribed
	upto    uint32          // generation that the latest event told of
	touched uint32          // latest one that changed our table, besides those of own
	within  bool            // the transaction that is being told of changes our table
	own     map[uint32]bool // made by ourselves and not told of yet
}

// leaveOut makes a transaction upon a generation, 0 = any. When it is taken, the next
// generation is known to be ours. No event is read before that is noted.
func (t *nftTrack) leaveOut(upon uint32, transact func() (taken bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if transact() && upon != 0 && t.socket != nil {
		t.own[upon+1] = true
	}
}

// look gives the current generation, and the one since which our table is what it is.
// Where the kernel does not tell it is the current one.
func (t *nftTrack) look(s *nftSocket) (seen, touched uint32, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lost := t.subscribe()
	if seen, err = s.generation(); err != nil {
		return 0, 0, err
	}
	if lost == nil {
		lost = t.drain()
	}
	// A transaction may have ended since, but one that did is to be known.
	if lost != nil || int32(t.upto-seen) < 0 {
		return seen, seen, nil
	}
	return t.upto, t.touched, nil
}

// subscribe begins, unless it has: all that was before counts as a change of ours.
func (t *nftTrack) subscribe() error {
	if t.socket != nil {
		return nil
	}
	socket, err := nftDial(t.opts.NetNS)
	if err != nil {
		return err
	}
	_ = unix.SetsockoptInt(socket.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, nftEventSpace)
	var begin uint32
	if err = unix.SetsockoptInt(socket.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, nftMulticast); err == nil {
		conn := nftConn{opts: t.opts} // on this one an answer could be taken for an event
		begin, err = conn.generation()
		err = errors.Join(err, conn.close())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("subscribe to nf_tables events: %w", err), socket.close())
	}
	t.socket, t.own, t.within, t.upto, t.touched = socket, map[uint32]bool{}, false, begin, begin
	return nil
}

// drain takes all events that wait. After an error the next look begins anew.
func (t *nftTrack) drain() error {
	for {
		n, err := t.socket.receive(unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			err = errors.Join(err, t.socket.close())
			t.socket = nil
			t.changed.Ring()
			return err
		}
		t.take(t.socket.buf[:n])
	}
}

// take reads a datagram of events. What it does not understand counts as ours.
func (t *nftTrack) take(b []byte) {
	for len(b) >= nftHeader {
		size := int(binary.NativeEndian.Uint32(b))
		if size < nftHeader+nftGenHeader || size > len(b) {
			t.within = true
			return
		}
		message := b[:size]
		b = b[min(nftAlign(size), len(b)):]
		if binary.NativeEndian.Uint16(message[4:]) != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
			t.within = t.within || nftTouchesOurs(message)
			continue
		}
		id := nftUint32(nftFind(message[nftHeader+nftGenHeader:], unix.NFTA_GEN_ID))
		if t.within && !t.own[id] {
			t.touched = id
			t.changed.Ring()
		}
		delete(t.own, id)
		t.upto, t.within = id, false
	}
}

// nftTouchesOurs reports whether an event is one of our table. Its name is attribute 1
// of every message about a table or what is in it.
func nftTouchesOurs(message []byte) bool {
	name := append([]byte(desired.TableName), 0)
	if len(message) < nftHeader+nftGenHeader {
		return true // not understood
	}
	return message[nftHeader] == unix.NFPROTO_INET &&
		bytes.Equal(nftFind(message[nftHeader+nftGenHeader:], unix.NFTA_TABLE_NAME), name)
}

// wait takes events as they come, until ctx ends or some are lost.
func (t *nftTrack) wait(ctx context.Context) error {
	t.mu.Lock()
	err := t.subscribe()
	socket := t.socket
	t.mu.Unlock()
	if err != nil {
		return err
	}
	// A file waits in the runtime's poller, where closing it ends a read.
	if err := unix.SetNonblock(socket.fd, true); err != nil {
		return fmt.Errorf("subscribe to nf_tables events: %w", err)
	}
	fd, err := unix.FcntlInt(uintptr(socket.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("subscribe to nf_tables events: %w", err)
	}
	file := os.NewFile(uintptr(fd), "nf_tables events")
	defer file.Close()
	defer context.AfterFunc(ctx, func() { file.Close() })()
	raw, err := file.SyscallConn()
	if err != nil {
		return fmt.Errorf("subscribe to nf_tables events: %w", err)
	}
	var lost error
	err = raw.Read(func(uintptr) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.socket != socket {
			lost = errNftInterrupted // somebody who looked saw that events were lost
		} else {
			lost = t.drain()
		}
		return lost != nil
	})
	if err = errors.Join(lost, err); err != nil {
		return fmt.Errorf("read nf_tables events: %w", err)
	}
	return nil
}
