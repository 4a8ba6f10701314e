package control

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

// listenRetryInterval is the interval between two attempts to listen at an address.
const listenRetryInterval = time.Second

// httpListener listens at a TCP address for metrics and health. If another process has the port, or
// the host lacks the address, it logs the error and retries. Traffic does not depend on it.
type httpListener struct {
	addr string
	log  *slog.Logger

	mu  sync.Mutex
	err error // why the address is not served
}

// HTTPListeners are the TCP addresses that serve health and metrics.
type HTTPListeners []*httpListener

// NewHTTPListeners returns the listeners of addrs (host:port).
func NewHTTPListeners(addrs []string, log *slog.Logger) HTTPListeners {
	out := make(HTTPListeners, len(addrs))
	for i, addr := range addrs {
		out[i] = &httpListener{addr: addr, log: log}
	}
	return out
}

// run listens and serves until ctx is done. It retries after errors.
func (l *httpListener) run(ctx context.Context, handler http.Handler) {
	for ctx.Err() == nil {
		listener, err := net.Listen("tcp", l.addr)
		l.record(err)
		if err == nil {
			if err = Serve(ctx, listener, handler); ctx.Err() == nil {
				l.record(fmt.Errorf("serve at %s: %w", l.addr, err))
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenRetryInterval):
		}
	}
}

// record stores the result of an attempt and logs changes.
func (l *httpListener) record(err error) {
	l.mu.Lock()
	before := l.err
	l.err = err
	l.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		l.log.Warn("metrics not served", "addr", l.addr, "err", err)
	case err == nil && before != nil:
		l.log.Info("metrics served", "addr", l.addr)
	}
}

// Run serves at all addresses until ctx is done.
func (all HTTPListeners) Run(ctx context.Context, handler http.Handler) {
	var wait sync.WaitGroup
	for _, l := range all {
		wait.Go(func() { l.run(ctx, handler) })
	}
	wait.Wait()
}

// States returns the state of each address that is not served.
func (all HTTPListeners) States() []status.InputState {
	var out []status.InputState
	for _, l := range all {
		l.mu.Lock()
		err := l.err
		l.mu.Unlock()
		if err != nil {
			out = append(out, status.InputState{Name: "metrics on " + l.addr, Error: err.Error()})
		}
	}
	return out
}
