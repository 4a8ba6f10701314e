package render

import (
	"fmt"
	"slices"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
)

// checkRoot refuses a root key that lacks what an epoch in force needs, and one that
// would make other keys for an epoch that is published.
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
		if in.AllowOtherRoot || !otherRoot(in, known, epoch) {
			continue
		}
		next := slices.Max(in.Topology.Spec.Keys.Epochs) + 1
		for k := range known {
			next = max(next, k.epoch+1)
		}
		list = append(list, diag.Diagnostic{Severity: diag.Error, Code: "root-break", Path: path,
			Summary: fmt.Sprintf("the keys of epoch %d that are published came from another root key: every tunnel would end until both its ends know the new ones", epoch),
			Hint: fmt.Sprintf("give that root key; another one can begin at epoch %d (hawser keys root FILE --from %d); if it is lost, --allow-other-root replaces it",
				next, next)})
	}
	return list
}

// otherRoot reports whether all keys that are published for an epoch came from another
// root key. Keys that a gateway brought are no witnesses, and neither are those of one
// that did until now.
func otherRoot(in Input, known map[gatewayEpoch]fabric.Key, epoch int) bool {
	other := false
	for i := range in.Topology.Spec.Clusters {
		c := &in.Topology.Spec.Clusters[i]
		for _, g := range c.AllGateways() {
			was, published := known[gatewayEpoch{c.Name, g.Name, epoch}]
			derived := g.PublicKey == "" && was.Public != "" && was.Public != KnownAfterPublish && was.Ed25519 != "" // as far as can be told
			if !published || !derived {
				continue
			}
			now, err := in.Root.Public(in.Topology.Metadata.Name, c.Name, g.Name, epoch)
			if err != nil {
				continue // Fabric reports it
			}
			if now.Public == was.Public {
				return false
			}
			other = true
		}
	}
	return other
}
