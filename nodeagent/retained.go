package nodeagent

import (
	"slices"

	"hawser.dev/hawser/schema/fabric"
)

// retained is what IPsec cables need, as it was when the fabric had it last. The
// fabric has it only while a link of it should be IPsec, but a cable stays until
// the one after it works. It is in memory only, as private keys are part of it.
type retained struct {
	settings fabric.IPsec
	public   map[retainedKey]string
	seeds    map[retainedKey]fabric.Secret // of this cluster

	fabric, patchedFabric *fabric.Fabric
	keys, patchedKeys     *fabric.Keys
}

type retainedKey struct {
	cluster, gateway string
	epoch            int
}

// merge gives fabric and keys with what they lack, as long as there are cables
// that need it. What it gives stays the same as long as nothing changes.
func (r *retained) merge(f *fabric.Fabric, k *fabric.Keys, needed bool) (*fabric.Fabric, *fabric.Keys) {
	if f != r.fabric || k != r.keys {
		r.learn(f, k)
		r.fabric, r.keys, r.patchedFabric, r.patchedKeys = f, k, r.patchFabric(f), r.patchKeys(k)
	}
	if !needed {
		return f, k
	}
	return r.patchedFabric, r.patchedKeys
}

func (r *retained) learn(f *fabric.Fabric, k *fabric.Keys) {
	if r.public == nil {
		r.public, r.seeds = map[retainedKey]string{}, map[retainedKey]fabric.Secret{}
	}
	if len(f.Tunnel.IPsec.Proposals) > 0 {
		r.settings = f.Tunnel.IPsec
	}
	for _, c := range f.Clusters {
		for _, g := range c.Gateways {
			for _, key := range g.Keys {
				if key.Ed25519 != "" {
					r.public[retainedKey{c.Name, g.Name, key.Epoch}] = key.Ed25519
				}
			}
		}
	}
	if k == nil {
		return
	}
	for _, e := range k.Epochs {
		for gateway, seed := range e.Ed25519 {
			r.seeds[retainedKey{k.Cluster, gateway, e.Epoch}] = seed
		}
	}
}

func (r *retained) patchFabric(f *fabric.Fabric) *fabric.Fabric {
	out := *f
	if len(out.Tunnel.IPsec.Proposals) == 0 {
		out.Tunnel.IPsec = r.settings
	}
	out.Clusters = slices.Clone(f.Clusters)
	for i := range out.Clusters {
		c := &out.Clusters[i]
		c.Gateways = slices.Clone(c.Gateways)
		for j := range c.Gateways {
			g := &c.Gateways[j]
			g.Keys = slices.Clone(g.Keys)
			for n := range g.Keys {
				if key := &g.Keys[n]; key.Ed25519 == "" {
					key.Ed25519 = r.public[retainedKey{c.Name, g.Name, key.Epoch}]
				}
			}
		}
	}
	return &out
}

func (r *retained) patchKeys(k *fabric.Keys) *fabric.Keys {
	if k == nil {
		return nil
	}
	out := *k
	out.Epochs = slices.Clone(k.Epochs)
	for i := range out.Epochs {
		e := &out.Epochs[i]
		if len(e.Ed25519) > 0 {
			continue
		}
		e.Ed25519 = map[string]fabric.Secret{}
		for key, seed := range r.seeds {
			if key.cluster == k.Cluster && key.epoch == e.Epoch {
				e.Ed25519[key.gateway] = seed
			}
		}
	}
	return &out
}
