package reach

import (
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/schema/fabric"
)

// ClientPort is a port that a client may have.
const ClientPort = 40000

// anyPort stands for the ports of what has no list of them.
const anyPort = 1

// Offer is something in a cluster that pods of other clusters may ask for, with a
// backend that is ready, should it need one.
type Offer struct {
	set     *Set
	cluster string
	at      []netip.Addr // one a family; empty: nobody has an address for it
	facts   Facts
}

// Export gives what a cluster offers of an export. It is nil when it has no part in it.
func (s *Set) Export(e *fabric.Export, cluster string) *Offer {
	part, c := e.Part(cluster), s.clusters[cluster]
	if part == nil || c == nil {
		return nil
	}
	ep := Endpoint{Addrs: SomePod(c), Ready: true, Ports: make(map[string]int, len(e.Ports))}
	for _, p := range e.Ports {
		ep.Ports[PortID(p)] = p.Port
	}
	o := &Offer{set: s, cluster: cluster, facts: Facts{e.ID(): {ep}}}
	switch {
	case len(part.IPs) > 0:
		o.at = part.IPs
	case len(part.Hosts) > 0:
		ep.Hostname = strings.Replace(part.Hosts[0].Name, "*", "pod", 1)
		o.facts[e.ID()] = []Endpoint{ep}
		o.at = part.Hosts[0].IPs
	default:
		for _, a := range ep.Addrs {
			if known, ok := known(c, a); ok {
				o.at = append(o.at, known)
			}
		}
	}
	return o
}

// At gives the addresses of the offer by which other clusters ask for it.
func (o *Offer) At() []netip.Addr { return o.at }

// Facts gives the backend that an offer of an export has; none of a prefix.
func (o *Offer) Facts() Facts { return o.facts }

// Named gives the exports that have an address: as their own, in a cluster, or of a host.
func (s *Set) Named(a netip.Addr) []*fabric.Export {
	return slices.DeleteFunc(slices.Clone(s.named[a]), func(e *fabric.Export) bool { return e.Dynamic })
}

// Dynamic gives what a cluster offers by an export that is made in it; nil when the
// clusterset or the cluster has no addresses for such.
func (s *Set) Dynamic(cluster string) *Offer {
	e := s.dynamic[cluster]
	if e == nil {
		return nil
	}
	return s.Export(e, cluster)
}

// Prefix gives a cluster's own prefix of pods or services; nil when it has none that
// holds it.
func (s *Set) Prefix(cluster string, p netip.Prefix) *Offer {
	c := s.clusters[cluster]
	if c == nil || !slices.ContainsFunc(slices.Concat(c.PodCIDRs, c.ServiceCIDRs), func(own netip.Prefix) bool {
		return own.Bits() <= p.Bits() && own.Contains(p.Addr())
	}) {
		return nil
	}
	return &Offer{set: s, cluster: cluster, at: []netip.Addr{some(p)}}
}

// Reached reports whether pods of another cluster reach the offer by a port. What has
// no list of ports is asked by the zero value.
func (o *Offer) Reached(from string, port fabric.Port) bool {
	if o == nil || !o.set.Connected(from, o.cluster) {
		return false
	}
	protocol, number := "tcp", uint16(anyPort)
	if port.Port != 0 {
		protocol, number = strings.ToLower(port.Protocol), uint16(port.Port)
	}
	client := SomePod(o.set.clusters[from])
	for _, dst := range o.at {
		src, ok := same(client, dst)
		if !ok {
			continue
		}
		way := o.set.Path(from, o.cluster, Packet{Protocol: protocol, Src: netip.AddrPortFrom(src, ClientPort),
			Dst: netip.AddrPortFrom(dst, number)}, o.facts)
		if way.Arrives() {
			return true
		}
	}
	return false
}

// Path is what becomes of a pod's packet for another cluster.
type Path struct {
	Out Verdict   // at its own gateway
	Src []Verdict // at the other cluster's gateway, one for each of the sources that it may have there
}

// Path follows a packet of a pod to a cluster, whose backends facts are.
func (s *Set) Path(from, to string, p Packet, facts Facts) Path {
	p.From = Pod
	w := Path{Out: s.Allowed(nil, from, p)}
	if w.Out.To != Tunnel {
		return w
	}
	srcs := w.Out.Srcs
	if len(srcs) == 0 {
		srcs = []netip.Addr{p.Src.Addr()}
	}
	for _, dst := range w.Out.Dst {
		if !s.Has(to, dst.Addr()) {
			continue
		}
		for _, src := range srcs {
			w.Src = append(w.Src, s.Allowed(facts, to, Packet{
				From: Tunnel, Cluster: from, Protocol: p.Protocol, Src: netip.AddrPortFrom(src, p.Src.Port()), Dst: dst,
			}))
		}
	}
	return w
}

// Arrives reports whether the packet comes out at what it was for.
func (w Path) Arrives() bool {
	return slices.ContainsFunc(w.Src, func(v Verdict) bool { return v.To == Pod || v.To == Service })
}

// Has reports whether an address leads to a cluster.
func (s *Set) Has(cluster string, a netip.Addr) bool {
	c := s.clusters[cluster]
	return c != nil && (inAny(c.GlobalCIDRs, a) || !c.Hides(fabric.Family(a)) && inAny(slices.Concat(c.PodCIDRs,
		c.ServiceCIDRs), a))
}

// Owner is the cluster to which an address leads from another one; empty = none.
func (s *Set) Owner(a netip.Addr, from string) string {
	for _, owner := range s.blocks.of(a, from) {
		return owner
	}
	for prefix, owner := range s.flat.of(a, from) {
		if me := s.clusters[from]; me != nil && (&site{Set: s, own: me}).seen(s.clusters[owner], prefix) {
			return owner
		}
	}
	return ""
}

// SomePod gives an address of a pod of a cluster in each family. Of a cluster without
// prefixes of pods they are addresses that mean nothing.
func SomePod(c *fabric.Cluster) []netip.Addr {
	var out []netip.Addr
	for _, p := range c.PodCIDRs {
		if a := some(p); !slices.ContainsFunc(out, func(o netip.Addr) bool { return o.Is4() == a.Is4() }) {
			out = append(out, a)
		}
	}
	if len(c.PodCIDRs) == 0 {
		out = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, 1}), netip.MustParseAddr("2001:db8::1")}
	}
	return out
}

// some gives an address of a prefix that is not its first one, if it has two.
func some(p netip.Prefix) netip.Addr {
	if a := p.Masked().Addr().Next(); p.Contains(a) {
		return a
	}
	return p.Addr()
}

// known gives the address by which other clusters know that of a pod.
func known(c *fabric.Cluster, a netip.Addr) (netip.Addr, bool) {
	if !c.Hides(fabric.Family(a)) {
		return a, true
	}
	for _, m := range c.Mappings {
		if m.Pods.Contains(a) {
			return moved(a, m.Global), true
		}
	}
	return netip.Addr{}, false
}
