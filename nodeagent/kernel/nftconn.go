package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// The transport to nf_tables. It is written against the kernel's interface
// (linux/netfilter/nfnetlink.h, nf_tables.h) because the Conn of
// github.com/google/nftables cannot say which element of a batch was refused,
// allocates per element (10 000 of them are read on many passes), and lacks the
// user data of interval maps. Rule expressions come from that module.

const (
	nftHeader    = unix.SizeofNlMsghdr
	nftGenHeader = 4       // struct nfgenmsg: family, version, resource id
	nftReceive   = 1 << 17 // the kernel fills at most 32 KiB a read
	nftSendSpace = 1 << 26 // one transaction is one datagram
)

// errNftInterrupted says that the ruleset changed during a dump.
var errNftInterrupted = errors.New("ruleset changed while it was read")

// nftSocket is a netlink socket for nf_tables; one goroutine at a time.
type nftSocket struct {
	fd      int
	seq     uint32
	buf     []byte
	end     error // with which the kernel ended the latest request
	broken  bool  // answers may still be under way
	cleanup runtime.Cleanup
}

// nftDial opens a socket in a network namespace (a file descriptor; 0 is the
// caller's own).
func nftDial(netns int) (*nftSocket, error) {
	if netns == 0 {
		return nftOpen()
	}
	type result struct {
		socket *nftSocket
		err    error
	}
	done := make(chan result)
	go func() {
		// The thread is not unlocked: it ends with the goroutine, so that no
		// other code ever runs in the foreign namespace.
		runtime.LockOSThread()
		if err := unix.Setns(netns, unix.CLONE_NEWNET); err != nil {
			done <- result{err: fmt.Errorf("enter network namespace: %w", err)}
			return
		}
		socket, err := nftOpen()
		done <- result{socket, err}
	}()
	r := <-done
	return r.socket, r.err
}

func nftOpen() (*nftSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netfilter socket: %w", err)
	}
	s := &nftSocket{fd: fd, buf: make([]byte, nftReceive)}
	s.cleanup = runtime.AddCleanup(s, func(fd int) { _ = unix.Close(fd) }, fd)
	if err := s.configure(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *nftSocket) configure() error {
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind netfilter socket: %w", err)
	}
	// Extended acknowledgements name the attribute that was refused. Without
	// them (Linux before 4.12) only the message is known.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, nftSendSpace) != nil {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, nftSendSpace)
	}
	timeout := unix.Timeval{Sec: 10}
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return fmt.Errorf("set timeout of netfilter socket: %w", err)
	}
	return nil
}

func (s *nftSocket) close() error {
	s.cleanup.Stop()
	return unix.Close(s.fd)
}

// request sends one message and calls visit with the body (attributes) of each
// answer. The body is only valid during the call.
func (s *nftSocket) request(b *nftBatch, visit func(body []byte) error) error {
	s.seq++
	binary.NativeEndian.PutUint32(b.buf[8:], s.seq)
	if err := s.send(b.buf); err != nil {
		return err
	}
	dump := binary.NativeEndian.Uint16(b.buf[6:])&unix.NLM_F_DUMP == unix.NLM_F_DUMP
	s.broken = true
	for {
		n, err := s.receive(0)
		if err != nil {
			return err
		}
		more, err := s.answers(s.buf[:n], dump, visit)
		if err != nil {
			return err
		}
		if !more {
			return s.end
		}
	}
}

// answers handles one datagram and reports whether more are to come.
func (s *nftSocket) answers(b []byte, dump bool, visit func(body []byte) error) (bool, error) {
	for len(b) >= nftHeader {
		size := int(binary.NativeEndian.Uint32(b))
		if size < nftHeader || size > len(b) {
			return false, fmt.Errorf("netlink message of %d bytes in a datagram of %d", size, len(b))
		}
		message := b[:size]
		b = b[min(nftAlign(size), len(b)):]
		if binary.NativeEndian.Uint32(message[8:]) != s.seq {
			continue
		}
		typ, flags := binary.NativeEndian.Uint16(message[4:]), binary.NativeEndian.Uint16(message[6:])
		if flags&unix.NLM_F_DUMP_INTR != 0 {
			return false, errNftInterrupted
		}
		if typ == unix.NLMSG_ERROR || typ == unix.NLMSG_DONE {
			s.broken, s.end = false, nftErrno(message[nftHeader:])
			return false, nil
		}
		if size < nftHeader+nftGenHeader {
			continue
		}
		if err := visit(message[nftHeader+nftGenHeader:]); err != nil {
			return false, err
		}
		if !dump {
			s.broken, s.end = false, nil
			return false, nil
		}
	}
	return true, nil
}

func nftErrno(body []byte) error {
	if len(body) < 4 {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(body)); code < 0 {
		return unix.Errno(-code)
	}
	return nil
}

func (s *nftSocket) send(b []byte) error {
	if err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		s.broken = true
		return fmt.Errorf("send %d bytes to nf_tables: %w", len(b), err)
	}
	return nil
}

func (s *nftSocket) receive(flags int) (int, error) {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buf, flags)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			s.broken = true
		}
		if err != nil {
			return 0, fmt.Errorf("receive from nf_tables: %w", err)
		}
		return n, nil
	}
}

// generation gives the number that the kernel counts up with every change of
// the ruleset of this network namespace.
func (s *nftSocket) generation() (uint32, error) {
	var id uint32
	err := s.request(nftGet(unix.NFT_MSG_GETGEN, false, nil), func(body []byte) error {
		id = nftUint32(nftFind(body, unix.NFTA_GEN_ID))
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read ruleset generation: %w", err)
	}
	return id, nil
}
