package feed

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"hawser.dev/hawser/internal/socket"
	"hawser.dev/hawser/internal/trigger"
)

// retryInterval is the interval at which a listener retries an address.
const retryInterval = 250 * time.Millisecond

// listener accepts connections at one address.
type listener struct {
	server  *Server
	address Listen
	tls     *tls.Config
}

// run listens until ctx is done, again whenever the device was replaced, and waits for its
// sessions.
func (l *listener) run(ctx context.Context) {
	var sessions sync.WaitGroup
	defer sessions.Wait()
	logged := ""
	for ctx.Err() == nil {
		err := l.listen(ctx, &sessions)
		if err != nil && ctx.Err() == nil && err.Error() != logged {
			logged = err.Error()
			l.server.config.Log.Warn("feed is not served", "addr", l.address.Addr, "device", l.address.Device, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// listen accepts connections until the device is replaced or ctx is done.
func (l *listener) listen(ctx context.Context, sessions *sync.WaitGroup) error {
	replaced := trigger.New()
	if l.address.Device != "" {
		devices := socket.WatchDevices(replaced.Fire)
		defer func() { _ = devices.Close() }()
	}
	index := socket.DeviceIndex(l.address.Device)
	options := socket.Options{Freebind: true, Device: l.address.Device}
	config := net.ListenConfig{Control: options.Control}
	open, err := config.Listen(ctx, socket.Network("tcp", l.address.Addr.Addr()), l.address.Addr.String())
	if err != nil {
		return err
	}
	var watcher sync.WaitGroup
	defer watcher.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watcher.Go(func() {
		defer func() { _ = open.Close() }()
		for {
			select {
			case <-ctx.Done():
				return
			case <-replaced:
				if socket.DeviceIndex(l.address.Device) != index {
					return
				}
			}
		}
	})
	for {
		conn, err := open.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		session := l.server.addSession(conn)
		if session == nil {
			_ = conn.Close()
			l.server.warnRefused(conn, errFull)
			continue
		}
		sessions.Go(func() {
			if err := l.server.serve(ctx, session, l.tls, l.address.Device != ""); errors.Is(err, errRefused) {
				l.server.warnRefused(conn, err)
			}
		})
	}
}

// maxWarned bounds the refusals that are stored as logged.
const maxWarned = 1000

// warnRefused logs why a client is refused, each reason once for each set of peers.
func (s *Server) warnRefused(conn net.Conn, err error) {
	s.mu.Lock()
	known := s.warned[err.Error()] || len(s.warned) >= maxWarned
	s.warned[err.Error()] = true
	s.mu.Unlock()
	if !known {
		s.config.Log.Warn("feed subscriber refused", "from", conn.RemoteAddr().String(), "err", err)
	}
}
