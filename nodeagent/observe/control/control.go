// Package control answers what people and programs ask an agent: the unix socket answers
// everything, and takes a drain; TCP addresses answer health and metrics alone.
// Who asks over the socket is hawser-agent, and with it hawser and the lab.
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
	httpTimeout = 5 * time.Second // for the header of a request
	httpIdle    = 2 * time.Minute // between two requests on a connection
)

// Config is what answers are made from.
type Config struct {
	Cluster, Node string
	Socket        string // path of the unix socket
	Log           *slog.Logger
	Status        func() status.Status
	Ready         func() bool
	Metrics       http.Handler
	Drain         *Drain
	OnDrainChange func()               // called after the drain changed
	Outcome       func() round.Outcome // of the last round
	State         func() round.State
	Links         func() health.Snapshot
	Names         func() []netip.AddrPort // where names are answered
	Inventory     func(context.Context) (inventory.Kernel, error)
	Plan          func(context.Context) ([]converge.Change, error)
	Snapshot      func() any // what a dry run beside the agent has to know
}

// Control answers.
type Control struct {
	config     Config
	diagnosing sync.Mutex // packets are being followed
}

// New makes a Control.
func New(config Config) *Control { return &Control{config: config} }

// Listen opens the unix socket, which answers everything, before anything else
// starts. A socket file that a killed agent left is replaced.
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

// Serve answers on a socket until ctx ends.
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

// SocketHandler is what the unix socket answers: all, and what changes something.
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
		c.config.Log.Info("drained until the agent ends")
		c.config.OnDrainChange()
		c.send(w, c.drainState(time.Now()))
	})
	mux.HandleFunc("POST /drain/drill", c.serveDrill)
	mux.HandleFunc("GET /diagnose", c.serveDiagnosis)
	mux.HandleFunc("GET /verify", c.serveVerification)
	mux.HandleFunc("GET /kernel", c.serveKernel)
	mux.HandleFunc("GET /plan", c.servePlan)
	mux.HandleFunc("GET /sight", func(w http.ResponseWriter, _ *http.Request) { c.send(w, c.config.Snapshot()) })
	return mux
}

func (c *Control) send(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		c.config.Log.Debug("answer not sent", "err", err)
	}
}

// TCPHandler is what TCP addresses answer too: whoever reaches the node can ask them, so
// that nothing of it changes anything or tells what the clusterset is like inside.
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

// serveKernel answers GET /kernel.
func (c *Control) serveKernel(w http.ResponseWriter, r *http.Request) {
	k, err := c.config.Inventory(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	c.send(w, k)
}

// servePlan answers GET /plan with what hawser-agent plan would print here, with the
// settings that this agent was started with.
func (c *Control) servePlan(w http.ResponseWriter, r *http.Request) {
	changes, err := c.config.Plan(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var text bytes.Buffer
	_ = converge.PrintPlan(&text, changes) // a Buffer gives no errors
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if _, err := w.Write(text.Bytes()); err != nil {
		c.config.Log.Debug("answer not sent", "err", err)
	}
}
