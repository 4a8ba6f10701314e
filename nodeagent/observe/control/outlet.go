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

// outletRetry is how long an address that cannot be listened on waits for the next try.
const outletRetry = time.Second

// outlet is a TCP address for metrics and health. What the node carries does not depend
// on it: as long as somebody else has the port, or the host lacks the address, that is
// told and tried again.
type outlet struct {
	addr string
	log  *slog.Logger

	mu  sync.Mutex
	err error // why nobody is answered there
}

// HTTPListeners are the TCP addresses at which an agent answers what anybody may ask.
type HTTPListeners []*outlet

// NewOutlets makes outlets, each of host:port.
func NewOutlets(addrs []string, log *slog.Logger) HTTPListeners {
	out := make(HTTPListeners, len(addrs))
	for i, addr := range addrs {
		out[i] = &outlet{addr: addr, log: log}
	}
	return out
}

// run answers until ctx ends.
func (o *outlet) run(ctx context.Context, handler http.Handler) {
	for ctx.Err() == nil {
		listener, err := net.Listen("tcp", o.addr)
		o.note(err)
		if err == nil {
			if err = Serve(ctx, listener, handler); ctx.Err() == nil {
				o.note(fmt.Errorf("serve at %s: %w", o.addr, err))
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(outletRetry):
		}
	}
}

// note keeps how it goes, and logs what is new.
func (o *outlet) note(err error) {
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

// Run answers at all of them until ctx ends.
func (all HTTPListeners) Run(ctx context.Context, handler http.Handler) {
	var wait sync.WaitGroup
	for _, o := range all {
		wait.Go(func() { o.run(ctx, handler) })
	}
	wait.Wait()
}

// States reports the addresses at which nobody is answered.
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
