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

// outletRetry is the interval between two attempts to listen at an address.
const outletRetry = time.Second

// outlet is a TCP address for metrics and health. Traffic does not depend on it: if another process
// has the port, or the host lacks the address, the agent logs that and tries again.
type outlet struct {
	addr string
	log  *slog.Logger

	mu  sync.Mutex
	err error // why the address is not served
}

// HTTPListeners are the TCP addresses that serve health and metrics.
type HTTPListeners []*outlet

// NewOutlets returns the outlets of addrs (host:port).
func NewOutlets(addrs []string, log *slog.Logger) HTTPListeners {
	out := make(HTTPListeners, len(addrs))
	for i, addr := range addrs {
		out[i] = &outlet{addr: addr, log: log}
	}
	return out
}

// run serves until ctx is done.
func (o *outlet) run(ctx context.Context, handler http.Handler) {
	for ctx.Err() == nil {
		listener, err := net.Listen("tcp", o.addr)
		o.record(err)
		if err == nil {
			if err = Serve(ctx, listener, handler); ctx.Err() == nil {
				o.record(fmt.Errorf("serve at %s: %w", o.addr, err))
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(outletRetry):
		}
	}
}

// record stores the result of an attempt and logs changes.
func (o *outlet) record(err error) {
	o.mu.Lock()
	before := o.err
	o.err = err
	o.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		o.log.Warn("metrics not served", "addr", o.addr, "err", err)
	case err == nil && before != nil:
		o.log.Info("metrics served", "addr", o.addr)
	}
}

// Run serves at all addresses until ctx is done.
func (all HTTPListeners) Run(ctx context.Context, handler http.Handler) {
	var wait sync.WaitGroup
	for _, o := range all {
		wait.Go(func() { o.run(ctx, handler) })
	}
	wait.Wait()
}

// States returns the addresses that are not served.
func (all HTTPListeners) States() []status.InputState {
	var out []status.InputState
	for _, o := range all {
		o.mu.Lock()
		err := o.err
		o.mu.Unlock()
		if err != nil {
			out = append(out, status.InputState{Name: "metrics on " + o.addr, Error: err.Error()})
		}
	}
	return out
}
