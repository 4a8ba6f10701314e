package dns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/netutil"

	"hawser.dev/hawser/internal/socket"
)

const (
	maxConnections = 256                    // concurrent TCP connections; more wait
	maxQueries     = 128                    // on one TCP connection
	idleTimeout    = 5 * time.Second        // between two queries on a TCP connection
	ioTimeout      = 2 * time.Second        // for one message
	bindRetry      = 250 * time.Millisecond // between two attempts to listen
)

// Query is one answered query, for metrics.
type Query struct {
	Transport string // udp | tcp
	Type      string // A, SRV, ...; "other" for types without a name
	Rcode     string // NOERROR, NXDOMAIN, ...
}

// Config configures Serve.
type Config struct {
	// Addr is the address to serve at. It may be missing at first, and may disappear and
	// return.
	Addr  netip.AddrPort
	Store *Store
	Log   *slog.Logger
	Count func(Query) // called for each query, from many goroutines; may be nil
	// Serving is called when the server starts and stops serving; may be nil.
	Serving func(bool)
}

// Serve serves over UDP and TCP until ctx is done, and returns when both servers have stopped.
// It retries an address that cannot be bound four times a second.
func Serve(ctx context.Context, config Config) error {
	logged := ""
	for {
		err := serveOnce(ctx, config)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && err.Error() != logged {
			logged = err.Error()
			config.Log.Warn("name server does not answer", "addr", config.Addr, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(bindRetry):
		}
	}
}

// serveOnce binds both sockets and serves until ctx is done or a socket fails.
func serveOnce(ctx context.Context, config Config) error {
	options := socket.Options{Freebind: true}
	listen := net.ListenConfig{Control: options.Control}
	addr := config.Addr.Addr().Unmap()
	packets, err := listen.ListenPacket(ctx, socket.Network("udp", addr), config.Addr.String())
	if err != nil {
		return fmt.Errorf("listen on udp %s: %w", config.Addr, err)
	}
	// If the port is 0, the kernel chose one for UDP; TCP uses the same.
	stream, err := listen.Listen(ctx, socket.Network("tcp", addr), packets.LocalAddr().String())
	if err != nil {
		return errors.Join(fmt.Errorf("listen on tcp %s: %w", config.Addr, err), packets.Close())
	}
	config.Log.Info("name server answers", "addr", packets.LocalAddr().String())
	if config.Serving != nil {
		config.Serving(true)
		defer config.Serving(false)
	}
	return serve(ctx, config, packets, netutil.LimitListener(lingeringListener{stream}, maxConnections))
}

func serve(ctx context.Context, config Config, packets net.PacketConn, stream net.Listener) error {
	udp := &dns.Server{PacketConn: packets, Handler: handler(config, "udp"), UDPSize: dns.MinMsgSize * 8, ReadTimeout: ioTimeout}
	tcp := &dns.Server{
		Listener: stream, Handler: handler(config, "tcp"), MaxTCPQueries: maxQueries,
		ReadTimeout: ioTimeout, WriteTimeout: ioTimeout, IdleTimeout: func() time.Duration { return idleTimeout },
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	errs := make([]error, 2)
	for i, server := range []*dns.Server{udp, tcp} {
		group.Go(func() {
			defer cancel()
			errs[i] = server.ActivateAndServe()
		})
	}
	<-ctx.Done()
	// Shutdown stops only a server that has started. Closing the sockets stops a server that
	// has not, or that waits for idle connections.
	_ = udp.ShutdownContext(ctx)
	_ = tcp.ShutdownContext(ctx)
	_, _ = packets.Close(), stream.Close()
	group.Wait()
	return errors.Join(errs...)
}

// lingeringListener is a listener whose connections close without a reset: closing with unread
// queries would discard the last replies in flight (RFC 1122, 4.2.2.13).
type lingeringListener struct{ net.Listener }

// Accept implements net.Listener.
func (l lingeringListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, is := conn.(*net.TCPConn); is {
		return lingeringConn{tcp}, err
	}
	return conn, err
}

type lingeringConn struct{ *net.TCPConn }

// lingerTime limits the time in which a closing connection reads from its client.
const lingerTime = time.Second

// Close sends the replies, reads until the client has closed, and closes.
func (c lingeringConn) Close() error {
	if c.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		// Any error means that the client has closed.
		_, _ = io.CopyN(io.Discard, c.TCPConn, dns.MaxMsgSize)
	}
	if err := c.TCPConn.Close(); err != nil {
		return fmt.Errorf("close connection: %w", err)
	}
	return nil
}

func handler(config Config, transport string) dns.Handler {
	return dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		size := limit(query, transport)
		var r *dns.Msg
		if snapshot := config.Store.current.Load(); transport == "tcp" {
			r = answer(snapshot, query)
		} else {
			r = answerWithin(snapshot, query, size)
		}
		if r == nil {
			return
		}
		truncate(r, size)
		raw, r := pack(query, r)
		// A client that closed its connection is not logged.
		_, _ = w.Write(raw)
		if config.Count != nil {
			config.Count(Query{Transport: transport, Type: typeName(query), Rcode: dns.RcodeToString[r.Rcode]})
		}
	})
}

// pack encodes a reply. A reply that cannot be encoded becomes SERVFAIL, so that the client does
// not wait for a timeout.
func pack(query, r *dns.Msg) ([]byte, *dns.Msg) {
	raw, err := r.Pack()
	if err == nil {
		return raw, r
	}
	failed := new(dns.Msg).SetRcode(query, dns.RcodeServerFailure)
	if len(optsOf(query)) > 0 {
		failed.SetEdns0(udpSize, false)
	}
	if raw, err = failed.Pack(); err != nil {
		failed.Question = nil // the bare header always packs
		raw, _ = failed.Pack()
	}
	return raw, failed
}

func typeName(query *dns.Msg) string {
	if len(query.Question) == 1 {
		if known, is := dns.TypeToString[query.Question[0].Qtype]; is {
			return known
		}
	}
	return "other"
}

// limit returns the maximum size of a reply: the client's limit, but over UDP at most udpSize,
// and at least the minimum of RFC 1035.
func limit(query *dns.Msg, transport string) int {
	if transport == "tcp" {
		return dns.MaxMsgSize
	}
	size := dns.MinMsgSize
	if opts := optsOf(query); len(opts) == 1 {
		size = int(opts[0].UDPSize())
	}
	return min(max(size, dns.MinMsgSize), udpSize)
}

// truncate limits the size of a reply. It removes additional addresses first. The TC bit marks only
// a reply that lacks answers (RFC 2181, 9).
func truncate(r *dns.Msg, size int) {
	r.Compress = true
	if r.Len() <= size {
		return
	}
	var opts []dns.RR
	for _, opt := range optsOf(r) {
		opts = append(opts, opt)
	}
	r.Extra = opts
	r.Truncate(size)
}
