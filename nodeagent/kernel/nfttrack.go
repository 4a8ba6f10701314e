package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// nftEventSpace is how many bytes of events may wait: a transaction of 16384 elements
// tells of each of them.
const nftEventSpace = 1 << 24

// nftTrack tells which generations of the ruleset changed our table, so that what
// others do in theirs (kube-proxy, at each change of a service) is no reason to read
// ours again. The kernel tells of each transaction to those who subscribed before its
// commit ends: first of each object, then of the new generation (nf_tables_commit). So
// what is not read here yet is not long over. The zero track is ready.
type nftTrack struct {
	socket  *nftSocket      // nil = not subscribed
	upto    uint32          // generation that the latest event told of
	touched uint32          // latest one that changed our table, besides those of own
	within  bool            // the transaction that is being told of changes our table
	own     map[uint32]bool // made by ourselves and not told of yet
}

// made leaves out a generation that is known to be our own transaction, upon one that
// was seen.
func (t *nftTrack) made(generation uint32) {
	if t.socket != nil {
		t.own[generation] = true
	}
}

// look gives the current generation, and the one since which our table is what it is.
// Where the kernel does not tell it is the current one.
func (t *nftTrack) look(s *nftSocket, opts NFTOptions) (seen, touched uint32, err error) {
	var lost error
	if t.socket == nil {
		lost = t.subscribe(s, opts)
	}
	if seen, err = s.generation(); err != nil {
		return 0, 0, err
	}
	if lost == nil {
		lost = t.drain()
	}
	if lost != nil {
		t.forget()
		return seen, seen, nil
	}
	// A transaction may have ended since.
	if int32(t.upto-seen) < 0 {
		return seen, seen, nil
	}
	return t.upto, t.touched, nil
}

// subscribe begins: all that was before counts as a change of ours.
func (t *nftTrack) subscribe(s *nftSocket, opts NFTOptions) error {
	socket, err := nftDial(opts.NetNS)
	if err != nil {
		return err
	}
	t.socket, t.own, t.within = socket, map[uint32]bool{}, false
	_ = unix.SetsockoptInt(socket.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, nftEventSpace)
	if err := unix.SetsockoptInt(socket.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, nftMulticast); err != nil {
		return fmt.Errorf("subscribe to nf_tables events: %w", err)
	}
	begin, err := s.generation()
	t.upto, t.touched = begin, begin
	return err
}

func (t *nftTrack) forget() {
	if t.socket != nil {
		_ = t.socket.close()
	}
	*t = nftTrack{}
}

// drain takes all events that wait.
func (t *nftTrack) drain() error {
	for {
		n, err := t.socket.receive(unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
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
		}
		delete(t.own, id)
		t.upto, t.within = id, false
	}
}
