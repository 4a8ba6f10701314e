package flow

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server answers flows: it sends datagrams back as they are, and does on a TCP
// connection what the client's first line says.
//
//	client: KIND ID INTERVAL          server: NAME
//	idle         client: any line     server: the same line
//	busy         client: any line     server: the same line
//	client-push  client: numbers      server: silent until "count": COUNT LONGEST-SILENCE
//	server-push  client: silent       server: numbers, one each INTERVAL
//	new          nothing more; the server closes
type Server struct {
	Name    string // what it says of itself, such as the pod's name
	Packets []net.PacketConn
	Streams []net.Listener
}

// Listen opens ports on all addresses, TCP and UDP each.
func Listen(name string, ports []int) (*Server, error) {
	s := &Server{Name: name}
	for _, port := range ports {
		address := fmt.Sprintf(":%d", port)
		packets, err := net.ListenPacket("udp", address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("serve: %w", err), s.Close())
		}
		widen(packets)
		s.Packets = append(s.Packets, packets)
		config := net.ListenConfig{KeepAlive: -1} // an idle connection sends nothing at all
		streams, err := config.Listen(context.Background(), "tcp", address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("serve: %w", err), s.Close())
		}
		s.Streams = append(s.Streams, streams)
	}
	return s, nil
}

// Close closes the ports, which ends Serve.
func (s *Server) Close() error {
	var errs []error
	for _, conn := range s.Packets {
		errs = append(errs, conn.Close())
	}
	for _, listener := range s.Streams {
		errs = append(errs, listener.Close())
	}
	return errors.Join(errs...)
}

// Serve answers until ctx ends, then closes the ports and all connections.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	for _, conn := range s.Packets {
		group.Go(func() { echo(conn) })
	}
	for _, listener := range s.Streams {
		group.Go(func() { s.accept(ctx, &group, listener) })
	}
	<-ctx.Done()
	err := s.Close()
	group.Wait()
	return err
}

func echo(conn net.PacketConn) {
	if b, ok := conn.(interface{ SetReadBuffer(int) error }); ok {
		_ = b.SetReadBuffer(4 << 20) // the system's limit is enough where it is lower
	}
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil { // other errors are ICMP messages about earlier answers
			_, _ = conn.WriteTo(buffer[:n], from)
		}
	}
}

func (s *Server) accept(ctx context.Context, group *sync.WaitGroup, listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client went away while it waited
		}
		group.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			defer conn.Close()
			s.answer(ctx, conn)
		})
	}
}

func (s *Server) answer(ctx context.Context, conn net.Conn) {
	lines := bufio.NewReader(conn)
	first, err := lines.ReadString('\n')
	fields := strings.Fields(first)
	if err != nil || len(fields) != 3 {
		return
	}
	interval, err := time.ParseDuration(fields[2])
	if err != nil || interval <= 0 {
		return
	}
	if _, err := fmt.Fprintln(conn, s.Name); err != nil {
		return
	}
	switch Kind(fields[0]) {
	case Idle, Busy:
		repeat(lines, conn)
	case ClientPush:
		count(lines, conn)
	case ServerPush:
		push(ctx, conn, interval)
	}
}

func repeat(lines *bufio.Reader, conn net.Conn) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		if _, err := conn.Write([]byte(line)); err != nil {
			return
		}
	}
}

// count reads numbers in silence, and tells how many there were and the longest
// time between two when it is asked.
func count(lines *bufio.Reader, conn net.Conn) {
	var got int
	var longest time.Duration
	var last time.Time
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		if !last.IsZero() {
			longest = max(longest, time.Since(last))
		}
		last = time.Now()
		if line == "count\n" {
			_, _ = fmt.Fprintf(conn, "%d %s\n", got, longest)
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err != nil || n != got {
			return // a stream that is not what was sent: the client sees it closed
		}
		got++
	}
}

func push(ctx context.Context, conn net.Conn, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 0; ; n++ {
		if _, err := fmt.Fprintln(conn, n); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
