package nodeagent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/inventory"
	"hawser.dev/hawser/nodeagent/kernel"
)

// kernelNow tells what the kernel of this node has.
func (a *Agent) kernelNow(ctx context.Context) (k inventory.Kernel, err error) {
	// The engine's own handle is for its goroutine alone.
	namespace, err := kernel.Open("")
	if err != nil {
		return k, err
	}
	defer func() { err = errors.Join(err, namespace.Close()) }()
	var named []string
	if n := a.shown.Load().node; n != nil {
		for _, s := range n.Sysctls {
			named = append(named, s.Name)
		}
	}
	k = namespace.Inventory(ctx, named)
	k.Cluster, k.Node = a.config.Cluster, a.config.Node
	return k, nil
}

// serveKernel answers GET /kernel.
func (a *Agent) serveKernel(w http.ResponseWriter, r *http.Request) {
	k, err := a.kernelNow(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	a.send(w, k)
}

// servePlan answers GET /plan with what hawser-agent plan would print here, with the
// settings that this agent was started with.
func (a *Agent) servePlan(w http.ResponseWriter, r *http.Request) {
	changes, err := a.planBeside(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var text bytes.Buffer
	_ = converge.PrintPlan(&text, changes) // a Buffer gives no errors
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if _, err := w.Write(text.Bytes()); err != nil {
		a.log.Debug("answer not sent", "err", err)
	}
}

// planBeside plans as another agent beside this one does, which asks this one for what
// it sees: the engine and its handles are for their own goroutine.
func (a *Agent) planBeside(ctx context.Context) (changes []converge.Change, err error) {
	beside, err := New(a.config, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, beside.Close()) }()
	return beside.Plan(ctx)
}
