package lab

import (
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/lab/underlayspec"
)

// routerSpec is the desired state of a router of the underlay file.
type routerSpec struct {
	underlayspec.Router                         // with its current addresses
	number              int                     // number in the names of its underlay links
	inner               []netip.Addr            // its inner addresses, one per family
	inside              map[string][]netip.Addr // addresses of the nodes behind it, by ID
}

// addSites adds the routers of the underlay file and assigns nodes to them.
func (w *desiredLab) addSites(s *state) error {
	for _, r := range s.Underlay.Routers {
		out := routerSpec{Router: r, number: s.number("router " + r.Name), inside: map[string][]netip.Addr{}}
		out.Addresses = s.now(r.Addresses)
		for _, a := range r.Addresses {
			inner, err := s.wanAddr("router "+r.Name+familyMark(a), a.Is6())
			if err != nil {
				return fmt.Errorf("router %s: %w", r.Name, err)
			}
			out.inner = append(out.inner, inner)
		}
		w.sites = append(w.sites, out)
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if behind := w.site(n.site); behind != nil && n.hasWAN {
			behind.inside[n.id()], n.bridge = n.wan, innerBridge(behind.number)
		}
	}
	return nil
}

func familyMark(a netip.Addr) string {
	if a.Is6() {
		return " 6"
	}
	return ""
}

// site returns the router with a name, or nil.
func (w *desiredLab) site(name string) *routerSpec {
	i := slices.IndexFunc(w.sites, func(s routerSpec) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &w.sites[i]
}

// now returns the current addresses after renumbering.
func (s *state) now(addrs []netip.Addr) []netip.Addr {
	out := slices.Clone(addrs)
	for i, a := range out {
		if moved, ok := s.Renumbered[a]; ok {
			out[i] = moved
		}
	}
	return out
}

// behind returns the addresses of a node behind a router: its endpoints without the router's
// addresses, and at least one address of each address family of the router.
func (s *state) behind(r *underlayspec.Router, id string, endpoints []netip.Addr) ([]netip.Addr, error) {
	out := slices.DeleteFunc(endpoints, func(a netip.Addr) bool { return slices.Contains(r.Addresses, a) })
	for _, a := range r.Addresses {
		if slices.ContainsFunc(out, sameFamily(a)) {
			continue
		}
		inside, err := s.wanAddr("inside "+id+familyMark(a), a.Is6())
		if err != nil {
			return nil, err
		}
		out = append(out, inside)
	}
	return out, nil
}

// wideRoutes returns a node's routes to the other gateways' addresses in the wide area.
func (w *desiredLab) wideRoutes(n *node) []route {
	var out []route
	if !n.hasWAN {
		return nil
	}
	index := map[netip.Addr]int{}
	for i := range w.nodes {
		other := &w.nodes[i]
		if other.id() == n.id() {
			continue
		}
		for _, remote := range w.addressesOf(other) {
			r, ok := w.wideRoute(n, other, remote)
			at, known := index[remote]
			switch {
			case !ok:
			case !known:
				index[remote] = len(out)
				out = append(out, r)
			case r.via.IsValid() && !out[at].via.IsValid(): // through a router, for one of the nodes with the address
				out[at] = r
			}
		}
	}
	slices.SortFunc(out, func(a, b route) int { return a.dst.Addr().Compare(b.dst.Addr()) })
	return out
}

// addressesOf returns all addresses at which a node may be reached.
func (w *desiredLab) addressesOf(n *node) []netip.Addr {
	out := slices.Clone(n.wan)
	if behind := w.site(n.site); behind != nil {
		out = append(out, behind.Addresses...)
	}
	return out
}

// wideRoute returns the route from a node to an address of another node.
func (w *desiredLab) wideRoute(n, other *node, remote netip.Addr) (route, bool) {
	src, ok := source(n.wan, remote, w.file)
	if !ok {
		return route{}, false
	}
	r := route{dst: cidr.Single(remote), dev: "wan0", src: src}
	router, peer := w.site(n.site), w.site(other.site)
	via := w.site(w.file.RouterFor([2]string{n.cluster, n.name}, [2]string{other.cluster, other.name}))
	switch {
	case router != nil && router == peer && slices.Contains(other.wan, remote):
	case router != nil:
		r.via, r.onnet = first(router.inner, sameFamily(remote)), true
	case via != nil:
		r.via, r.onnet = via.Outside(remote.Is6()), true
	case peer != nil && peer.NAT == "" && !slices.Contains(peer.Addresses, remote):
		r.via, r.onnet = peer.Outside(remote.Is6()), true
	}
	return r, !r.onnet || r.via.IsValid()
}

// source selects the source address. It prefers an address in the same network.
func source(addrs []netip.Addr, remote netip.Addr, file *underlayspec.File) (netip.Addr, bool) {
	for _, a := range addrs {
		if a.Is6() == remote.Is6() && file.Segment(a) == file.Segment(remote) {
			return a, true
		}
	}
	a := first(addrs, sameFamily(remote))
	return a, a.IsValid()
}

func first(addrs []netip.Addr, ok func(netip.Addr) bool) netip.Addr {
	if i := slices.IndexFunc(addrs, ok); i >= 0 {
		return addrs[i]
	}
	return netip.Addr{}
}

// routes returns the router's routes. All destinations are on the outer link, except the nodes
// behind it and behind other routers without translation.
func (t *routerSpec) routes(w *desiredLab) []route {
	var out []route
	for _, a := range t.Addresses {
		out = append(out, route{dst: defaultPrefix(a), dev: underlayspec.Out, src: a})
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		behind := w.site(n.site)
		for _, a := range n.wan {
			switch {
			case behind == nil || !n.hasWAN:
			case behind.Name == t.Name:
				out = append(out, route{dst: cidr.Single(a), dev: underlayspec.In})
			case behind.NAT == "" && behind.Outside(a.Is6()).IsValid():
				out = append(out, route{dst: cidr.Single(a), dev: underlayspec.Out, via: behind.Outside(a.Is6()), onnet: true})
			}
		}
	}
	return out
}
