package render

import (
	"fmt"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
)

// supportedDriver is the only driver whose data path exists.
const supportedDriver = "wireguard"

// Unsupported reports what a valid topology asks for and the data path does not
// have yet (code not-supported-yet).
func Unsupported(top *schema.ClusterSet) diag.List {
	u := &unsupported{}
	spec := &top.Spec
	if spec.Tunnel.Driver != supportedDriver {
		u.add("tunnel.driver", "the driver "+spec.Tunnel.Driver, "the driver wireguard")
	}
	if spec.Connectivity.Mode != schema.ModeMesh {
		u.add("connectivity.mode", "connectivity "+spec.Connectivity.Mode, "connectivity mesh")
	}
	if len(spec.Keys.Epochs) > 1 {
		u.add("keys.epochs", "more than one key epoch", "one epoch at a time; changing it replaces all tunnel keys at once")
	}
	for i := range spec.Clusters {
		u.cluster(top, &spec.Clusters[i])
	}
	return u.list
}

type unsupported struct{ list diag.List }

func (u *unsupported) add(path, what, have string) {
	u.list = append(u.list, diag.Diagnostic{Severity: diag.Error, Code: "not-supported-yet", Path: path,
		Summary: what + " is not supported yet", Hint: "supported: " + have})
}

// cluster checks the tunnel settings that are one for the whole clusterset.
func (u *unsupported) cluster(top *schema.ClusterSet, c *schema.Cluster) {
	path := fmt.Sprintf("clusters[%s].tunnel", c.Name)
	all, own := top.Spec.Tunnel, top.TunnelOf(c)
	if own.Driver != all.Driver {
		u.add(path+".driver", "a driver of its own for one cluster", "tunnel.driver for all; of a cluster its own port")
	}
	if own.MTU != all.MTU {
		u.add(path+".mtu", "an MTU of its own for one cluster", "tunnel.mtu for all, or 0 to compute it; of a cluster its own port")
	}
	if *own.Keepalive != *all.Keepalive {
		u.add(path+".keepalive", "a keepalive of its own for one cluster", "tunnel.keepalive for all; of a cluster its own port")
	}
}
