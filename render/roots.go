package render

import (
	"fmt"
	"slices"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
)

// checkRoot returns an error if no root key serves a current epoch. It also returns an error if the
// root key would derive other keys for a published epoch.
func checkRoot(in Input, known map[gatewayEpoch]fabric.Key) diag.List {
	if in.Root == nil {
		return nil
	}
	var list diag.List
	for i, epoch := range in.Topology.Spec.Keys.Epochs {
		path := fmt.Sprintf("keys.epochs[%d]", i)
		if _, err := in.Root.EpochRoot(epoch); err != nil {
			list = append(list, diag.Diagnostic{Severity: diag.Error, Code: "no-root-key", Path: path, Summary: err.Error(),
				Hint: fmt.Sprintf("put back the root key that serves epoch %d, from a copy: it can go once that epoch has left keys.epochs", epoch)})
			continue
		}
		if in.AllowOtherRoot || !fromOtherRoot(in, known, epoch) {
			continue
		}
		next := slices.Max(in.Topology.Spec.Keys.Epochs) + 1
		for k := range known {
			next = max(next, k.epoch+1)
		}
		list = append(list, diag.Diagnostic{Severity: diag.Error, Code: "root-break", Path: path,
			Summary: fmt.Sprintf("the published keys of epoch %d came from another root key: every tunnel would be down until both its ends know the new ones", epoch),
			Hint: fmt.Sprintf("use that root key; a new root key can start at epoch %d (hawser keys root FILE --from %d); if it is lost, --allow-other-root replaces it",
				next, next)})
	}
	return list
}

// fromOtherRoot reports whether another root key derived all published keys of an epoch. It ignores
// keys from the new or the published topology.
func fromOtherRoot(in Input, known map[gatewayEpoch]fabric.Key, epoch int) bool {
	other := false
	for i := range in.Topology.Spec.Clusters {
		c := &in.Topology.Spec.Clusters[i]
		for _, g := range c.AllGateways() {
			published, found := known[gatewayEpoch{c.Name, g.Name, epoch}]
			comparable := g.PublicKey == "" && published.Public != "" && published.Public != KnownAfterPublish && published.Ed25519 != "" // as far as the fabric shows
			if !found || !comparable {
				continue
			}
			derived, err := in.Root.Public(in.Topology.Metadata.Name, c.Name, g.Name, epoch)
			if err != nil {
				continue // Fabric reports it
			}
			if derived.Public == published.Public {
				return false
			}
			other = true
		}
	}
	return other
}
