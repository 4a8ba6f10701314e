package nodeagent

import (
	"context"
	"errors"
	"net/http"

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
