package feed

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"hawser.dev/hawser/internal/socket"
)

// retry is how often a place that cannot be listened at is tried again, and the
// device of one that is listened at compared with the one it was bound to.
const retry = 250 * time.Millisecond

// listener accepts connections at one place.
type listener struct {
	server *Server
	place  Listen
	tls    *tls.Config
}

// run listens until ctx ends, anew whenever the device was made anew, and waits
// for the sessions that came from here.
func (l *listener) run(ctx context.Context) {
	var sessions sync.WaitGroup
	defer sessions.Wait()
	logged := ""
	for ctx.Err() == nil {
		err := l.once(ctx, &sessions)
		if err != nil && ctx.Err() == nil && err.Error() != logged {
			logged = err.Error()
			l.server.config.Log.Warn("feed is not served", "addr", l.place.Addr, "device", l.place.Device, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

func (l *listener) once(ctx context.Context, sessions *sync.WaitGroup) error {
	index := socket.DeviceIndex(l.place.Device)
	options := socket.Options{Freebind: true, Device: l.place.Device}
	config := net.ListenConfig{Control: options.Control}
	open, err := config.Listen(ctx, socket.Network("tcp", l.place.Addr.Addr()), l.place.Addr.String())
	if err != nil {
		return err
	}
	var watcher sync.WaitGroup
	defer watcher.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watcher.Go(func() {
		defer func() { _ = open.Close() }()
		ticker := time.NewTicker(retry)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if socket.DeviceIndex(l.place.Device) != index {
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
		if !l.server.places.enter(conn) {
			_ = conn.Close()
			continue
		}
		sessions.Go(func() {
			err := l.server.serve(ctx, conn, l)
			if errors.Is(err, errRefused) || errors.Is(err, errFull) {
				// Once per set of peers.
				s := l.server
				s.mu.Lock()
				known := s.warned[err.Error()] || len(s.warned) >= maxWarned
				s.warned[err.Error()] = true
				s.mu.Unlock()
				if !known {
					s.config.Log.Warn("feed subscriber refused", "from", conn.RemoteAddr().String(), "err", err)
				}
			}
		})
	}
}

// maxWarned bounds the refusals that are remembered as logged.
const maxWarned = 1000
