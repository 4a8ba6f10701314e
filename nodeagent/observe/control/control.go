// Package control serves the agent's HTTP endpoints. The unix socket serves all endpoints,
// including drain. TCP addresses serve only health and metrics.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/kernel/inventory"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/nodeagent/status"
)

const (
	httpTimeout = 5 * time.Second // to receive the header of a request
	httpIdle    = 2 * time.Minute // between two requests on a connection
)

// Config holds the sources of the responses.
type Config struct {
	Cluster, Node string
	Socket        string // path of the unix socket
	Log           *slog.Logger
	Status        func() status.Status
	Ready         func() bool
	Metrics       http.Handler
	Drain         *Drain
	OnDrainChange func()               // Control calls it after the drain changed
	Outcome       func() round.Outcome // of the last round
	State         func() round.State
	Links         func() health.Snapshot
	Names         func() []netip.AddrPort // addresses of the name server
	Inventory     func(context.Context) (inventory.Kernel, error)
	Plan          func(context.Context) ([]converge.Change, error)
	Snapshot      func() any // the running agent's status, for hawser-agent plan
	// MissingTests returns the number of IPv4 test packets of direct pairs that have not
	// returned since the start.
	MissingTests func() int
}

// Control serves the agent's HTTP endpoints.
type Control struct {
	config     Config
	diagnosing sync.Mutex // held while a trace runs
}

// New returns a Control.
func New(config Config) *Control { return &Control{config: config} }

// Listen opens the unix socket. It replaces the socket file of a killed agent.
func (c *Control) Listen() (net.Listener, error) {
	if err := os.Remove(c.config.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("replace socket: %w", err)
	}
	unix, err := net.Listen("unix", c.config.Socket)
	if err != nil {
		return nil, fmt.Errorf("listen for status: %w", err)
	}
	if err := os.Chmod(c.config.Socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect socket: %w", err), unix.Close())
	}
	return unix, nil
}

// Serve serves handler on a socket until ctx is done.
func Serve(ctx context.Context, socket net.Listener, handler http.Handler) error {
	h := &http.Server{Handler: handler, ReadHeaderTimeout: httpTimeout, IdleTimeout: httpIdle}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := h.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return h.Close()
	})
	return group.Wait()
}

// SocketHandler returns the handler of the unix socket. It serves all endpoints, including
// endpoints that change state.
func (c *Control) SocketHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", c.TCPHandler())
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { c.send(w, c.config.Status()) })
	mux.HandleFunc("GET /drain", func(w http.ResponseWriter, _ *http.Request) { c.send(w, c.drainState(time.Now())) })
	set := func(drained bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := c.drained(drained); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			c.send(w, c.drainState(time.Now()))
		}
	}
	mux.HandleFunc("POST /drain", set(true))
	mux.HandleFunc("POST /undrain", set(false))
	mux.HandleFunc("POST /drain/until-restart", func(w http.ResponseWriter, _ *http.Request) {
		c.config.Drain.drainUntilRestart()
		c.config.Log.Info("gateway drained until the agent exits")
		c.config.OnDrainChange()
		c.send(w, c.drainState(time.Now()))
	})
	mux.HandleFunc("POST /drain/drill", c.serveDrill)
	mux.HandleFunc("GET /diagnose", c.serveDiagnosis)
	mux.HandleFunc("GET /verify", c.serveVerification)
	mux.HandleFunc("GET /kernel", c.serveKernel)
	mux.HandleFunc("GET /plan", c.servePlan)
	mux.HandleFunc("GET /snapshot", func(w http.ResponseWriter, _ *http.Request) { c.send(w, c.config.Snapshot()) })
	return mux
}

func (c *Control) send(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		c.config.Log.Debug("response not sent", "err", err)
	}
}

// TCPHandler returns the handler of the TCP addresses. Anyone who reaches the node can send
// requests to it. So it changes nothing, and reveals only health and metrics.
func (c *Control) TCPHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !c.config.Ready() {
			http.Error(w, "not ready: see hawser-agent status", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", c.config.Metrics)
	return mux
}

// serveKernel serves GET /kernel.
func (c *Control) serveKernel(w http.ResponseWriter, r *http.Request) {
	k, err := c.config.Inventory(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	c.send(w, k)
}

// servePlan serves GET /plan: the output of hawser-agent plan with the settings of this agent.
func (c *Control) servePlan(w http.ResponseWriter, r *http.Request) {
	changes, err := c.config.Plan(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var text bytes.Buffer
	_ = converge.PrintPlan(&text, changes) // a Buffer returns no errors
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if _, err := w.Write(text.Bytes()); err != nil {
		c.config.Log.Debug("response not sent", "err", err)
	}
}
