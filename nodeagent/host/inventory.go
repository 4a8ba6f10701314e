package host

import (
	"context"
	"errors"

	"hawser.dev/hawser/nodeagent/inventory"
	"hawser.dev/hawser/nodeagent/kernel"
)

// Inventory reports what the kernel of this node has, of everybody.
func (h *Host) Inventory(ctx context.Context) (k inventory.Kernel, err error) {
	// The engine's own handle is for its goroutine alone.
	namespace, err := kernel.Open("")
	if err != nil {
		return k, err
	}
	defer func() { err = errors.Join(err, namespace.Close()) }()
	var named []string
	if n := h.config.Wanted(); n != nil {
		for _, s := range n.Sysctls {
			named = append(named, s.Name)
		}
	}
	k = namespace.Inventory(ctx, named)
	k.Cluster, k.Node = h.config.Cluster, h.config.Node
	return k, nil
}
