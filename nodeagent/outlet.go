package nodeagent

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

func newOutlets(addrs []string, log *slog.Logger) []*outlet {
	out := make([]*outlet, len(addrs))
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
			if err = serve(ctx, listener, handler); ctx.Err() == nil {
				o.note(fmt.Errorf("serve at %s: %w", o.addr, err))
			}
		}
		pause(ctx, outletRetry)
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

// outletStates tells of the addresses at which nobody is answered.
func outletStates(outlets []*outlet) []status.InputState {
	var out []status.InputState
	for _, o := range outlets {
		o.mu.Lock()
		err := o.err
		o.mu.Unlock()
		if err != nil {
			out = append(out, status.InputState{Name: "metrics on " + o.addr, Error: err.Error()})
		}
	}
	return out
}
