package round

import (
	"net/netip"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/peer/pathmtu"
)

// PathMTUSpec has the links whose path MTU this node probes.
type PathMTUSpec struct {
	Self   string // this gateway as cluster/gateway; empty = the node is not a gateway
	Listen []netip.Addr
	Links  []pathmtu.Link
}

// pathMTUSpec returns the links to probe, with the MTU of their tunnels in the last projection.
// links has the active links.
func pathMTUSpec(self string, p ProbeSpec, last *DesiredNode, links map[string]model.Path) PathMTUSpec {
	out := PathMTUSpec{Self: self}
	for _, l := range p.Listen {
		if l.Device == "" {
			out.Listen = append(out.Listen, l.Addr)
		}
	}
	if last == nil {
		return out
	}
	mtus := make(map[health.GatewayID]int, len(last.Tunnels))
	for _, c := range last.Tunnels {
		peer := health.GatewayID{Cluster: c.Cluster, Gateway: c.Gateway}
		if mtus[peer] == 0 {
			mtus[peer] = c.MTU
		}
	}
	for _, t := range p.Targets {
		mtu := mtus[t.Peer]
		if t.Device != "" || mtu == 0 {
			continue
		}
		path := links[t.Peer.Cluster]
		out.Links = append(out.Links, pathmtu.Link{
			Peer: t.Peer.String(), Source: t.Source, Addr: t.Addr, MTU: mtu,
			InUse: path.Local == p.Gateway && path.Remote == t.Peer.Gateway,
		})
	}
	return out
}

// limit sets the MTU of paths over this gateway's links. narrow has the path MTUs that are less
// than the tunnel's MTU, by remote gateway.
func (w *paths) limit(gateway string, narrow map[string]int) {
	if gateway == "" || len(narrow) == 0 {
		return
	}
	for _, all := range []map[string]model.Path{w.remote, w.own} {
		for remote, path := range all {
			size, known := narrow[health.GatewayID{Cluster: path.Next(remote), Gateway: path.Remote}.String()]
			if known && path.Local == gateway && (path.MTU == 0 || size < path.MTU) {
				path.MTU = size
				all[remote] = path
			}
		}
	}
}
