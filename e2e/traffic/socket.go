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

// Dialer makes one connection to an address of a network, which is tcp or udp; the
// address is IP:PORT. A TCP connection is established when it returns.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (d Dialer) orPlain() Dialer {
	if d == nil {
		return Socket{}.Dial
	}
	return d
}

// Socket says where sockets are made, and how TCP repeats on them. There are no
// keep-alive packets: an idle connection sends nothing at all.
type Socket struct {
	Net string // file that pins the network namespace; empty = that of the process
	// RetryAtMost is how far apart TCP repeats what was not acknowledged, at most, 1 s or
	// more: otherwise its own waiting, which doubles each time, is measured and not the
	// network's. 0, and a kernel before 6.15: as the kernel likes.
	RetryAtMost time.Duration
	GiveUp      time.Duration // how long TCP repeats before the connection ends; 0 = as the kernel likes
	Port        int           // of this end; 0 = any
}

// inside calls do in the namespace.
func (s Socket) inside(do func() error) error {
	if s.Net == "" {
		return do()
	}
	return netnsexec.Do(s.Net, do)
}

// Dial is a Dialer. Only the making of the socket happens on a thread in the namespace,
// so that a thousand of them wait without a thousand threads.
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

// prepare sets how a TCP socket repeats.
func (s Socket) prepare(fd int) error {
	if s.RetryAtMost > 0 {
		err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, tcpRTOMax, int(s.RetryAtMost.Milliseconds()))
		if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
			return fmt.Errorf("limit the distance of retries: %w", err)
		}
	}
	if s.GiveUp > 0 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(s.GiveUp.Milliseconds())); err != nil {
			return fmt.Errorf("set when TCP gives up: %w", err)
		}
	}
	return nil
}

// connected waits until the handshake has ended.
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

// Ports gives a Dialer whose connections have the ports from first to end-1 in turn. The
// kernel may take one that it chose itself again after 10 s, while conntrack still knows the
// connection before, of which the new one would be a part: it goes where that went.
func (s Socket) Ports(first, end int) Dialer {
	turn := make(chan int, 1)
	turn <- first
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		from := s
		from.Port = <-turn
		turn <- first + (from.Port+1-first)%(end-first)
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

// widen gives a socket room for what comes while this process waits for a
// processor: what is measured is the way, not the machine. Beyond the system's
// limit it takes a right that not everybody has; that limit is enough otherwise.
func widen(conn any) {
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
