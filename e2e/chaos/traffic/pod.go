package traffic

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/lab/netspace"
)

// Pod is where sockets are opened.
type Pod struct {
	Name string // CLUSTER/NAME
	Path string // file that pins its network namespace
}

const (
	// tcpRTOMax is the socket option TCP_RTO_MAX_MS of Linux 6.15.
	tcpRTOMax = 44
	// retryAtLeast is how often TCP repeats what was not acknowledged, at the
	// latest: otherwise its own waiting, which doubles each time, would be
	// measured and not the network's. 1 s is the least that the kernel takes.
	retryAtLeast = time.Second
	// patience is how long TCP tries before it gives a connection up.
	patience = 2 * time.Minute
)

// dial opens a socket inside the pod and begins to connect it; the first read or
// write waits for the end of that.
func (p Pod) dial(kind int, to netip.AddrPort) (net.Conn, error) {
	var conn net.Conn
	err := netspace.Do(p.Path, func() error {
		family, at := sockaddr(to)
		fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open socket: %w", err)
		}
		file := os.NewFile(uintptr(fd), "socket")
		defer file.Close()
		if kind == unix.SOCK_STREAM {
			if err := patient(fd); err != nil {
				return err
			}
		}
		err = unix.Connect(fd, at)
		if err != nil && !errors.Is(err, unix.EINPROGRESS) {
			return fmt.Errorf("connect: %w", err)
		}
		conn, err = net.FileConn(file)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s to %s: %w", p.Name, to, err)
	}
	return conn, nil
}

func sockaddr(at netip.AddrPort) (family int, out unix.Sockaddr) {
	if at.Addr().Is6() {
		return unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	return unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
}

// patient sets how a TCP socket retries. A kernel without the limit of the
// retries' distance works too, with longer waits.
func patient(fd int) error {
	err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, tcpRTOMax, int(retryAtLeast.Milliseconds()))
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		return fmt.Errorf("limit the distance of retries: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(patience.Milliseconds())); err != nil {
		return fmt.Errorf("set patience: %w", err)
	}
	return nil
}

// Server answers on one TCP and one UDP port of a pod.
type Server struct {
	pod      Pod
	seen     func(caller, server string, from netip.Addr)
	listener *net.TCPListener
	packets  *net.UDPConn
}

// The ports of every server.
const (
	TCPPort = 8001
	UDPPort = 8002
)

// pushEvery is how often a connection of mode push gets a message.
const pushEvery = 100 * time.Millisecond

// Serve starts a server; seen is told of the first message of each connection and
// of every datagram, with the address that it came from.
func Serve(p Pod, seen func(caller, server string, from netip.Addr)) (*Server, error) {
	s := &Server{pod: p, seen: seen}
	err := netspace.Do(p.Path, func() error {
		listener, err := net.Listen("tcp", ":"+strconv.Itoa(TCPPort))
		if err != nil {
			return err
		}
		s.listener = listener.(*net.TCPListener)
		packets, err := net.ListenPacket("udp", ":"+strconv.Itoa(UDPPort))
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		s.packets = packets.(*net.UDPConn)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("serve in %s: %w", p.Name, err)
	}
	go s.accept()
	go s.datagrams()
	return s, nil
}

// Close ends the server; its connections end with their callers'.
func (s *Server) Close() error { return errors.Join(s.listener.Close(), s.packets.Close()) }

func (s *Server) accept() {
	for {
		conn, err := s.listener.AcceptTCP()
		if err != nil {
			return // closed
		}
		go s.serve(conn)
	}
}

func (s *Server) serve(conn *net.TCPConn) {
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil || raw.Control(func(fd uintptr) { err = patient(int(fd)) }) != nil || err != nil {
		return
	}
	first, err := receive(conn)
	if err != nil {
		return
	}
	s.seen(first.who, s.pod.Name, addressOf(conn.RemoteAddr()))
	if first.mode == bulk {
		var all []byte
		for seq := range uint64(bulkOf) {
			all = append(all, message{who: s.pod.Name, mode: bulk, seq: seq}.encode()...)
		}
		_, _ = conn.Write(all) // who called notices
		return
	}
	if first.mode == push {
		// What the caller sends is read, so that its end is noticed.
		go func() { _, _ = receive(conn); _ = conn.Close() }()
		s.push(conn)
		return
	}
	for m := first; err == nil; m, err = receive(conn) {
		if _, err = conn.Write(message{who: s.pod.Name, mode: m.mode, seq: m.seq}.encode()); err != nil {
			return
		}
	}
}

func (s *Server) push(conn net.Conn) {
	tick := time.NewTicker(pushEvery)
	defer tick.Stop()
	for seq := uint64(0); ; seq++ {
		if _, err := conn.Write(message{who: s.pod.Name, mode: push, seq: seq}.encode()); err != nil {
			return
		}
		<-tick.C
	}
}

func (s *Server) datagrams() {
	buffer := make([]byte, 2*size)
	for {
		n, from, err := s.packets.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		m, bad := decode(buffer[:n])
		if err != nil || bad != nil {
			continue // an ICMP error about an earlier answer, or nothing of ours
		}
		s.seen(m.who, s.pod.Name, from.Addr().Unmap())
		_, _ = s.packets.WriteToUDPAddrPort(message{who: s.pod.Name, mode: m.mode, seq: m.seq}.encode(), from)
	}
}

func addressOf(addr net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
