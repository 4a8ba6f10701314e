// Package nftables reads and writes nf_tables over netlink (linux/netfilter/nfnetlink.h,
// nf_tables.h). A Batch holds the messages of one transaction, and Conn.Commit reports
// which message and which attribute the kernel refused. Reads decode into one buffer, so
// that sets of many thousand elements cost few allocations.
//
// The package knows tables, chains, sets, elements and rules. The expressions of a rule are
// bytes, encoded by package expr of github.com/google/nftables; see Attributes.Expression.
package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	headerSize        = unix.SizeofNlMsghdr
	genHeaderSize     = 4       // struct nfgenmsg: family, version, resource id
	receiveBufferSize = 1 << 17 // the kernel fills at most 32 KiB a read
	sendBufferSize    = 1 << 26 // bytes of the largest transaction, which is one datagram
	responseTimeout   = 10 * time.Second
)

// ErrInterrupted means that the ruleset changed during a read, so that the result may
// contain some objects twice and lack others. Read again.
var ErrInterrupted = errors.New("ruleset changed while it was read")

// Conn is a netlink socket for nf_tables. It is not safe for concurrent use.
//
// Keep a Conn for many uses: if its socket deleted something, closing it waits until the
// kernel has freed the objects, 5 to 25 ms.
type Conn struct {
	socket *netlink.Conn
	raw    syscall.RawConn
	seq    uint32
	buf    []byte
	result error // result of the latest request
	broken bool  // replies may still arrive
}

// Dial opens a socket in a network namespace, given by a file descriptor of it. 0 is the
// namespace of the calling thread.
func Dial(netns int) (*Conn, error) {
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("open netfilter socket: %w", err)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open netfilter socket: %w", err), socket.Close())
	}
	// Extended acknowledgements contain the refused attribute. Linux before 4.12 lacks them;
	// a Fault then contains the message only.
	_ = socket.SetOption(netlink.ExtendedAcknowledge, true)
	_ = socket.SetOption(netlink.CapAcknowledge, true)
	_ = socket.SetWriteBuffer(sendBufferSize)
	return &Conn{socket: socket, raw: raw, buf: make([]byte, receiveBufferSize)}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.socket.Close() }

// Broken reports whether an earlier call failed in a way that leaves replies unread. Such a
// Conn must be closed.
func (c *Conn) Broken() bool { return c.broken }

// Generation returns the generation of the ruleset, a number that the kernel increments
// with every transaction in this network namespace.
func (c *Conn) Generation() (uint32, error) {
	var id uint32
	err := c.request(newRequest(unix.NFT_MSG_GETGEN, 0, FamilyUnspecified, nil), func(_ Family, attrs []byte) error {
		id = toUint32(find(attrs, unix.NFTA_GEN_ID))
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read ruleset generation: %w", err)
	}
	return id, nil
}

// Commit sends a transaction. The kernel applies all of it, or, with a *RefusedError,
// nothing.
func (c *Conn) Commit(b *Batch) error {
	if len(b.messageStarts) < 2 {
		return nil
	}
	last, base := b.finish(c.seq)
	c.seq = base + uint32(len(b.messageStarts)) - 1
	if err := c.send(b.attrs.buf); err != nil {
		return err
	}
	// The kernel has handled the whole transaction before send returned, so all replies are
	// already queued.
	refused := &RefusedError{}
	confirmed := false
	for {
		n, err := c.receive(false)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return err
		}
		fault, ok := parseFault(c.buf[:n], base)
		switch {
		case !ok:
		case fault.Err != nil:
			refused.Faults = append(refused.Faults, fault)
		case fault.Message == last:
			confirmed = true
		}
	}
	if confirmed && len(refused.Faults) == 0 {
		return nil
	}
	return refused
}

// request sends one message and calls visit with the family and the attributes of each
// answer. The attributes are only valid during the call.
func (c *Conn) request(b *Batch, visit func(family Family, attrs []byte) error) error {
	message := b.attrs.buf
	c.seq++
	binary.NativeEndian.PutUint32(message[8:], c.seq)
	if err := c.socket.SetReadDeadline(time.Now().Add(responseTimeout)); err != nil {
		return fmt.Errorf("set timeout of netfilter socket: %w", err)
	}
	if err := c.send(message); err != nil {
		return err
	}
	dump := binary.NativeEndian.Uint16(message[6:])&unix.NLM_F_DUMP == unix.NLM_F_DUMP
	c.broken = true
	for {
		n, err := c.receive(true)
		if err != nil {
			return err
		}
		moreFollow, err := c.parseResponses(c.buf[:n], dump, visit)
		if err != nil {
			return err
		}
		if !moreFollow {
			return c.result
		}
	}
}

// parseResponses handles one datagram and reports whether more follow.
func (c *Conn) parseResponses(b []byte, dump bool, visit func(family Family, attrs []byte) error) (bool, error) {
	for len(b) >= headerSize {
		size := int(binary.NativeEndian.Uint32(b))
		if size < headerSize || size > len(b) {
			return false, fmt.Errorf("netlink message of %d bytes in a datagram of %d", size, len(b))
		}
		message := b[:size]
		b = b[min(align(size), len(b)):]
		if binary.NativeEndian.Uint32(message[8:]) != c.seq {
			continue
		}
		typ, flags := binary.NativeEndian.Uint16(message[4:]), binary.NativeEndian.Uint16(message[6:])
		if flags&unix.NLM_F_DUMP_INTR != 0 {
			return false, ErrInterrupted
		}
		if typ == unix.NLMSG_ERROR || typ == unix.NLMSG_DONE {
			c.broken, c.result = false, parseErrno(message[headerSize:])
			return false, nil
		}
		if size < headerSize+genHeaderSize {
			continue
		}
		if err := visit(Family(message[headerSize]), message[headerSize+genHeaderSize:]); err != nil {
			return false, err
		}
		if !dump {
			c.broken, c.result = false, nil
			return false, nil
		}
	}
	return true, nil
}

// send and receive use the file descriptor of the socket: the methods of netlink.Conn drop
// the flag NLM_F_DUMP_INTR of the last message of a dump, and allocate per message.
func (c *Conn) send(b []byte) error {
	var sendErr error
	err := c.raw.Write(func(fd uintptr) bool {
		sendErr = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !errors.Is(sendErr, unix.EAGAIN)
	})
	if err = errors.Join(err, sendErr); err != nil {
		c.broken = true
		return fmt.Errorf("send %d bytes to nf_tables: %w", len(b), err)
	}
	return nil
}

// receive reads one datagram into c.buf. Without wait it returns EAGAIN if none is there.
func (c *Conn) receive(wait bool) (n int, err error) {
	read := func(fd uintptr) bool {
		for {
			n, _, err = unix.Recvfrom(int(fd), c.buf, unix.MSG_DONTWAIT)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	}
	var failed error
	if wait {
		failed = c.raw.Read(read)
	} else {
		failed = c.raw.Control(func(fd uintptr) { read(fd) })
	}
	if failed != nil {
		err = failed // of a closed socket, or at the deadline
	}
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, unix.EAGAIN) {
		c.broken = true
	}
	return 0, fmt.Errorf("receive from nf_tables: %w", err)
}
