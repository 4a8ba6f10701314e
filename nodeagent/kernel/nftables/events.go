package nftables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	eventGroup = 7 // NFNLGRP_NFTABLES
	// eventBufferSize is the size of the receive buffer, bytes. A transaction of 16384 elements
	// sends an event for each.
	eventBufferSize = 1 << 24
)

// Listener receives the events of nf_tables. The kernel sends a transaction's events before
// the commit returns (nf_tables_commit): first one per object, then the new generation.
//
// Poll and Wait may be called at the same time, each by one goroutine.
type Listener struct{ conn *Conn }

// Event is a change of one object, or the end of a transaction.
type Event struct {
	Table      TableName // of the object; empty at the end of a transaction
	Generation uint32    // that the transaction created; 0 for objects
	Malformed  bool      // the event could not be decoded
}

// Listen subscribes to the events of a network namespace; see Dial.
func Listen(netns int) (*Listener, error) {
	conn, err := Dial(netns)
	if err != nil {
		return nil, err
	}
	l := &Listener{conn}
	_ = l.SetReadBuffer(eventBufferSize)
	if err := conn.socket.JoinGroup(eventGroup); err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to nf_tables events: %w", err), conn.Close())
	}
	return l, nil
}

// SetReadBuffer sets how many bytes of events the kernel stores, 16 MiB by default. If more
// arrive between two calls of Poll, Poll returns unix.ENOBUFS.
func (l *Listener) SetReadBuffer(bytes int) error { return l.conn.socket.SetReadBuffer(bytes) }

// Close ends the subscription, and a Wait in progress.
func (l *Listener) Close() error { return l.conn.Close() }

// Poll calls visit for all events that were received, without waiting. After an error, such
// as unix.ENOBUFS, events were lost.
func (l *Listener) Poll(visit func(Event)) error {
	for {
		n, err := l.conn.receive(false)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return err
		}
		parseEvents(l.conn.buf[:n], visit)
	}
}

// Wait blocks until Poll has something to do, or until ctx is done, and then returns ctx's
// error.
func (l *Listener) Wait(ctx context.Context) error {
	if err := l.conn.socket.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("wait for nf_tables events: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = l.conn.socket.SetReadDeadline(time.Now()) })()
	var peek [1]byte
	err := l.conn.raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), peek[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN)
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("wait for nf_tables events: %w", err)
	}
	return nil
}

// parseEvents decodes one datagram.
func parseEvents(b []byte, visit func(Event)) {
	for len(b) >= headerSize {
		size := int(binary.NativeEndian.Uint32(b))
		if size < headerSize+genHeaderSize || size > len(b) {
			visit(Event{Malformed: true})
			return
		}
		message := b[:size]
		b = b[min(align(size), len(b)):]
		attrs := message[headerSize+genHeaderSize:]
		if binary.NativeEndian.Uint16(message[4:]) == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
			visit(Event{Generation: toUint32(find(attrs, unix.NFTA_GEN_ID))})
			continue
		}
		// The table's name is attribute 1 of every message about a table or its contents.
		visit(Event{Table: TableName{Family(message[headerSize]), toString(find(attrs, unix.NFTA_TABLE_NAME))}})
	}
}
