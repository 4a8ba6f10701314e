package reconciler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// shutdownTimeout is the maximum time until requests in flight complete.
const shutdownTimeout = 2 * time.Second

// Handler serves /healthz, /readyz, /metrics, /status and POST /webhook.
func (r *Reconciler) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", r.readyz)
	mux.HandleFunc("GET /status", r.status)
	mux.Handle("GET /metrics", r.metrics.handler())
	mux.Handle("POST /webhook", &webhook{
		secretFile: r.cfg.WebhookSecretFile,
		ref:        "refs/heads/" + r.cfg.SourceBranch,
		trigger:    r.Trigger,
		count:      func(result string) { r.metrics.webhooks.WithLabelValues(result).Inc() },
	})
	return mux
}

// readyz responds 200 as long as a good state is published. A refused commit does not matter: a
// restart of the reconciler would not help.
func (r *Reconciler) readyz(w http.ResponseWriter, _ *http.Request) {
	s := r.statusStore.load()
	switch {
	case s.Ready && s.LastError == nil:
		_, _ = fmt.Fprintln(w, "ok")
	case s.Ready && s.Active == nil: // only the state file contains the commit
		_, _ = fmt.Fprintf(w, "ok: on the last published commit %s (%s)\n", s.Published, s.LastError.Reason)
	case s.Ready:
		_, _ = fmt.Fprintf(w, "ok: on the last good revision %s (%s)\n", s.Active.Commit, s.LastError.Reason)
	case s.LastError != nil:
		http.Error(w, "not ready: "+s.LastError.Message, http.StatusServiceUnavailable)
	default:
		http.Error(w, "not ready: the first pass has not ended", http.StatusServiceUnavailable)
	}
}

func (r *Reconciler) status(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(r.statusStore.load()) // fails if the client has disconnected
}

// serve serves HTTP until ctx is done.
func (r *Reconciler) serve(ctx context.Context, listener net.Listener) error {
	srv := &http.Server{
		Handler:           r.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       time.Minute,
	}
	serveErr := make(chan error, 1)
	go func() { serveErr <- srv.Serve(listener) }()
	select {
	case err := <-serveErr:
		return fmt.Errorf("serve HTTP on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := srv.Shutdown(shutdownCtx); err != nil {
		_ = srv.Close()
	}
	if err := <-serveErr; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", listener.Addr(), err)
	}
	return nil
}
