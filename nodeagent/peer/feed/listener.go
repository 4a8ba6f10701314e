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
	server    *Server
	address   Listen
	tlsConfig *tls.Config
}

// run listens until ctx is done. It listens again after the device was replaced or listening
// failed. It returns after its sessions have ended.
func (l *listener) run(ctx context.Context) {
	var sessions sync.WaitGroup
	defer sessions.Wait()
	lastErr := ""
	for ctx.Err() == nil {
		err := l.listen(ctx, &sessions)
		if err != nil && ctx.Err() == nil && err.Error() != lastErr {
			lastErr = err.Error()
			l.server.config.Log.Warn("cannot serve feed", "addr", l.address.Addr, "device", l.address.Device, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// listen accepts connections until the device is replaced or ctx is done.
func (l *listener) listen(ctx context.Context, sessions *sync.WaitGroup) error {
	devicesChanged := trigger.New()
	if l.address.Device != "" {
		devices := socket.WatchDevices(devicesChanged.Fire)
		defer func() { _ = devices.Close() }()
	}
	ifIndex := socket.DeviceIndex(l.address.Device)
	options := socket.Options{Freebind: true, Device: l.address.Device}
	config := net.ListenConfig{Control: options.Control}
	ln, err := config.Listen(ctx, socket.Network("tcp", l.address.Addr.Addr()), l.address.Addr.String())
	if err != nil {
		return err
	}
	var watcher sync.WaitGroup
	defer watcher.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watcher.Go(func() {
		defer func() { _ = ln.Close() }()
		for {
			select {
			case <-ctx.Done():
				return
			case <-devicesChanged:
				if socket.DeviceIndex(l.address.Device) != ifIndex {
					return
				}
			}
		}
	})
	for {
		conn, err := ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		session := l.server.addSession(conn)
		if session == nil {
			_ = conn.Close()
			l.server.warnRefused(conn, errConnectionLimit)
			continue
		}
		sessions.Go(func() {
			if err := l.server.serve(ctx, session, l.tlsConfig, l.address.Device != ""); errors.Is(err, errRefused) {
				l.server.warnRefused(conn, err)
			}
		})
	}
}

// maxLoggedRefusals bounds the stored reasons of logged refusals.
const maxLoggedRefusals = 1000

// warnRefused logs why a client is refused. It logs each reason once after each change of the
// peers, and at most maxLoggedRefusals reasons: clients choose the names in some of them.
func (s *Server) warnRefused(conn net.Conn, err error) {
	s.mu.Lock()
	log := !s.warned[err.Error()] && len(s.warned) < maxLoggedRefusals
	if log {
		s.warned[err.Error()] = true
	}
	s.mu.Unlock()
	if log {
		s.config.Log.Warn("feed subscriber refused", "from", conn.RemoteAddr().String(), "err", err)
	}
}
