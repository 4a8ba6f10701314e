package nodeagent

import (
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/pathmtu"
	"hawser.dev/hawser/nodeagent/project"
)

// sizes looks for black holes on this gateway's links. Only the engine's
// goroutine uses it, but for the finder, which anybody may.
type sizes struct {
	finder *pathmtu.Finder
	listen []netip.Addr
	links  []pathmtu.Link
}

// follow probes the tunnels that the prober probes, with packets as large as each
// one's MTU, by remote gateway.
func (s *sizes) follow(p probing, mtus map[health.Peer]int, links map[string]project.Path) {
	var listen []netip.Addr
	for _, l := range p.listen {
		if l.Device == "" {
			listen = append(listen, l.Addr)
		}
	}
	var list []pathmtu.Link
	for _, t := range p.targets {
		mtu := mtus[t.Peer]
		if t.Device != "" || mtu == 0 {
			continue
		}
		path := links[t.Peer.Cluster]
		list = append(list, pathmtu.Link{
			Peer: t.Peer.String(), Source: t.Source, Addr: t.Addr, MTU: mtu,
			Carries: path.Local == p.gateway && path.Remote == t.Peer.Gateway,
		})
	}
	if slices.Equal(listen, s.listen) && slices.Equal(list, s.links) {
		return
	}
	s.listen, s.links = listen, list
	s.finder.Set(listen, list)
}

// found gives, by remote gateway, what passes where that is less than the tunnel's MTU.
func (s *sizes) found() map[string]pathmtu.Path {
	out := map[string]pathmtu.Path{}
	for _, p := range s.finder.Snapshot() {
		if p.State == pathmtu.BlackHole && p.Value < p.MTU {
			out[p.Peer] = p
		}
	}
	return out
}

// limit gives this gateway's own links the size that passes.
func limit(gateway string, w ways, found map[string]pathmtu.Path) ways {
	if gateway == "" || len(found) == 0 {
		return w
	}
	for _, paths := range []map[string]project.Path{w.paths, w.transit} {
		for remote, path := range paths {
			hole, known := found[health.Peer{Cluster: path.Next(remote), Gateway: path.Remote}.String()]
			if known && path.Local == gateway && (path.MTU == 0 || hole.Value < path.MTU) {
				path.MTU = hole.Value
				paths[remote] = path
			}
		}
	}
	return w
}
