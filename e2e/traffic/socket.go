package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/lab/netnsexec"
)

// Dialer opens one connection. network is tcp or udp, address is IP:PORT. A TCP connection
// is established when Dialer returns.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (d Dialer) orPlain() Dialer {
	if d == nil {
		return Socket{}.Dial
	}
	return d
}

// Socket holds the network namespace and the TCP retransmission options of new sockets.
// Sockets send no keep-alive packets: an idle connection is silent.
type Socket struct {
	Net string // file that pins the network namespace; empty: the namespace of this process
	// RetryAtMost is the longest interval between TCP retransmissions, 1 s or more. Without
	// it the interval doubles each time, and a measurement shows TCP's wait, not the
	// network's. 0, or a kernel before 6.15: the kernel's default.
	RetryAtMost time.Duration
	GiveUp      time.Duration // TCP user timeout; 0: the kernel's default
	Port        int           // local port; 0: any
}

// inside calls do in the namespace of the socket.
func (s Socket) inside(do func() error) error {
	if s.Net == "" {
		return do()
	}
	return netnsexec.Do(s.Net, do)
}

// Dial implements Dialer. Only socket(2) runs on a thread in the namespace, so a thousand
// pending connections need no thousand threads.
func (s Socket) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := s.dial(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connect %s %s: %w", network, address, err)
	}
	return conn, nil
}

func (s Socket) dial(ctx context.Context, network, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	kind := unix.SOCK_DGRAM
	if network == "tcp" {
		kind = unix.SOCK_STREAM
	}
	family := unix.AF_INET
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	var fd int
	err = s.inside(func() (err error) {
		fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), network)
	defer file.Close()
	if network == "tcp" {
		err = s.prepare(fd)
	}
	if err == nil && s.Port != 0 {
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.Bind(fd, sockaddr(netip.AddrPortFrom(unspecified(to.Addr()), uint16(s.Port)))),
		)
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return nil, err
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	if stream, ok := conn.(*net.TCPConn); ok {
		if err := errors.Join(stream.SetKeepAlive(false), connected(ctx, stream)); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

func unspecified(like netip.Addr) netip.Addr {
	if like.Is6() {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
}

// tcpRTOMax is the socket option TCP_RTO_MAX_MS of Linux 6.15.
const tcpRTOMax = 44

// prepare sets the retransmission options of a TCP socket.
func (s Socket) prepare(fd int) error {
	if s.RetryAtMost > 0 {
		err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, tcpRTOMax, int(s.RetryAtMost.Milliseconds()))
		if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
			return fmt.Errorf("limit the interval between retransmissions: %w", err)
		}
	}
	if s.GiveUp > 0 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(s.GiveUp.Milliseconds())); err != nil {
			return fmt.Errorf("set the TCP user timeout: %w", err)
		}
	}
	return nil
}

// connected waits for the end of the handshake.
func connected(ctx context.Context, conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		if err != nil {
			failed = err
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	if !stop() {
		return errors.Join(err, failed, ctx.Err())
	}
	return errors.Join(err, failed)
}

// Ports returns a Dialer that uses the local ports first..end-1 in rotation. The kernel may
// reuse a port of its own choice after 10 s, while conntrack still has the entry of the
// previous connection: the new one would then follow the old one's path.
func (s Socket) Ports(first, end int) Dialer {
	next := make(chan int, 1)
	next <- first
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		from := s
		from.Port = <-next
		next <- first + (from.Port+1-first)%(end-first)
		return from.Dial(ctx, network, address)
	}
}

// listen opens a port on all addresses, TCP and UDP.
func (s Socket) listen(port int) (streams net.Listener, packets net.PacketConn, err error) {
	address := ":" + strconv.Itoa(port)
	err = s.inside(func() (err error) {
		if packets, err = net.ListenPacket("udp", address); err != nil {
			return err
		}
		config := net.ListenConfig{KeepAlive: -1}
		if streams, err = config.Listen(context.Background(), "tcp", address); err != nil {
			return errors.Join(err, packets.Close())
		}
		return nil
	})
	return streams, packets, err
}

// raiseReadBuffer enlarges a socket's receive buffer. Packets that arrive while this process
// waits for a processor are then not lost: the test measures the network, not the machine. To
// exceed the system's limit it needs CAP_NET_ADMIN; without it, the limit is enough.
func raiseReadBuffer(conn any) {
	if b, ok := conn.(interface{ SetReadBuffer(int) error }); ok {
		_ = b.SetReadBuffer(readBuffer)
	}
	control(conn, func(fd int) { _ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, readBuffer) })
}

const readBuffer = 8 << 20 // bytes

// control calls do with the file descriptor of a connection, and reports whether it has one.
func control(conn any, do func(fd int)) bool {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	return err == nil && raw.Control(func(fd uintptr) { do(int(fd)) }) == nil
}
