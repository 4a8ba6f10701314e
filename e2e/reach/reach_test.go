package reach

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/reach"
)

// patience is how long a packet may take that should arrive.
const patience = 2 * time.Second

// number reads a setting of the environment, which make reach gives.
func number(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q is no number", name, text)
	}
	return n
}

// TestReach: what a gateway's rules do to packets of all sorts, from all places, spoofed
// ones included, is what Allowed says of the topology.
func TestReach(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	seed := number(t, "SEED", 1)
	topologies, packets := number(t, "TOPOLOGIES", 20), number(t, "PACKETS", 1000)
	s := newSpace(t)
	counts := map[Point]map[Point]int{}
	const through = Point("through") // in counts: a neighbour passed it on
	accepted := map[bool]int{}       // ICMP errors, by whether they arrive
	id := uint32(1)
	for n := range topologies {
		rng := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
		w := newWorld(t, rng)
		s.put(w.state, w.node, w.fabric.Cluster(own).PodCIDRs)
		set, facts := reach.New(w.fabric), backends(w.facts)
		for range packets / topologies {
			p := w.packet(rng)
			id++
			want := set.Allowed(facts, own, p)
			bytes := raw(p, id)
			if p.Via != "" {
				from, to := w.facing(p.Via)
				bytes = passed(bytes, from, to, s.mac)
			}
			out := s.send(p.From, bytes)
			for begun := time.Now(); want.To != Dropped && len(out) == 0 && time.Since(begun) < patience; {
				out = s.drain() // a busy kernel may do it later
			}
			out = slices.DeleteFunc(out, func(o seen) bool { return w.unclaimed(p, o) })
			if why := w.differs(p, want, out, id); why != "" {
				t.Errorf("topology %d of seed %d: %+v: %s\nwant %+v\ngot %+v\n%s", n, seed, p, why, want, out, w.text)
				if t.Failed() {
					return
				}
			}
			if e, about := w.failure(rng, p, out); about {
				id++
				arrives := set.ErrorCounts(own, e.from, e.remote)
				if got := s.fails(e, id, arrives); got != arrives {
					t.Fatalf("topology %d of seed %d: %+v: the ICMP error %+v arrives: %t, want %t\n%s", n, seed, p, e, got, arrives, w.text)
				}
				accepted[arrives]++
			}
			from := p.From
			if p.Via != "" {
				from = through
			}
			if counts[from] == nil {
				counts[from] = map[Point]int{}
			}
			counts[from][want.To]++
		}
	}
	t.Logf("%d packets over %d topologies: %v, ICMP errors: %v", packets, topologies, counts, accepted)
	if packets >= 1000 && (accepted[true] == 0 || accepted[false] == 0) {
		t.Errorf("ICMP errors that arrive, and others: %v", accepted)
	}
	// Each place has packets that arrive and such that do not, or nothing is proved.
	for _, from := range []Point{Tunnel, through, Pod, Node} {
		if packets >= 1000 && (counts[from][Dropped] == 0 || len(counts[from]) < 2) {
			t.Errorf("from %s: %v", from, counts[from])
		}
	}
}

// unclaimed: the link between nodes has a route for addresses that the host's own
// processes ask for, and no node that has them; and what means nothing to the clusterset
// leaves by the default route, as it does without Hawser.
func (w *world) unclaimed(p Packet, o seen) bool {
	f, c := w.fabric, w.fabric.Cluster(own)
	switch o.at {
	case Node:
		return inAny(slices.Concat(c.GlobalCIDRs, f.ServicePools), o.dst.Addr())
	case Neighbor:
		known := inAny(slices.Concat(c.GlobalCIDRs, f.ServicePools, f.TunnelPools), o.dst.Addr())
		for i := range f.Clusters {
			known = known || f.Clusters[i].Name != own && w.sends(&f.Clusters[i], o.dst.Addr())
		}
		return p.From != Tunnel && !known
	}
	return false
}

// differs says in what the kernel did something else; empty when it did not.
func (w *world) differs(p Packet, want Verdict, out []seen, id uint32) string {
	arrived := false
	for _, o := range out {
		if o.id != id || o.protocol == "reset" || o.protocol == "icmp error" {
			// Answers of the kernel: pods and nodes are told at once what is refused.
			if (p.From == Neighbor || p.From == Tunnel && want.To != Host) && o.at == p.From {
				return "the sender is answered: " + o.protocol
			}
			continue
		}
		switch {
		case want.To == Host && o.at == p.From && o.dst.Addr() == p.Src.Addr():
			continue // the gateway answers
		case want.To == Service && o.at == Neighbor: // there is no proxy here that would translate it
		case want.To == Dropped || o.at != want.To:
			return "it came out at " + string(o.at)
		case o.at == Host:
			arrived = true
			continue
		}
		to := netip.AddrPortFrom(o.dst.Addr(), o.dst.Port())
		if p.Protocol == "icmp" {
			to = netip.AddrPortFrom(o.dst.Addr(), 0)
		}
		if !slices.ContainsFunc(want.Dst, func(a netip.AddrPort) bool {
			return a == to || p.Protocol == "icmp" && a.Addr() == to.Addr()
		}) {
			return "it went to " + to.String()
		}
		if o.at == Tunnel {
			if next := w.next(o.dst.Addr(), p.Via != ""); o.via != next {
				return "it goes first to " + o.via.String() + " and not to " + next.String()
			}
		}
		src := o.src.Addr()
		// From pod to pod the node may stand in between, as kube-proxy has it stand.
		if want.To == Pod && p.From != Tunnel {
			arrived = true
			continue
		}
		if len(want.Srcs) == 0 && src != p.Src.Addr() || len(want.Srcs) > 0 && !slices.Contains(want.Srcs, src) {
			return "it came from " + src.String()
		}
		arrived = true
	}
	if want.To != Dropped && !arrived {
		return "it did not arrive"
	}
	return ""
}

// packet makes one up: of a place, from an address that who stands there has or
// pretends to have, for an address that means something.
func (w *world) packet(rng *rand.Rand) Packet {
	p := Packet{From: pick(rng, Tunnel, Tunnel, Tunnel, Pod, Pod, Node, Neighbor), Protocol: pick(rng, "tcp", "tcp", "udp", "udp", "icmp")}
	p.MidFlow = p.Protocol != "udp" && rng.IntN(4) == 0
	for {
		dst := w.target(rng)
		if p.From != Tunnel && inAny(slices.Concat(w.fabric.Cluster(own).PodCIDRs, w.fabric.Cluster(own).ServiceCIDRs), dst) {
			continue // the cluster's own network
		}
		if p.From == Tunnel && rng.IntN(12) == 0 {
			dst = pick(rng, w.fabric.Cluster(own).Gateways[0].Addresses...)
		}
		if rng.IntN(20) == 0 {
			dst = pick(rng, w.fabric.DNS.Addresses()...)
		}
		if mapped := w.mapped(); p.From == Tunnel && p.Protocol == "udp" && len(mapped) > 0 && rng.IntN(3) == 0 {
			dst = pick(rng, mapped...)
		}
		src, ok := w.source(rng, &p, dst)
		if !ok {
			continue
		}
		sport, dport := uint16(20000+rng.IntN(40000)), uint16(pick(rng, 80, 81, 53, 54, 8080, 8081, 8053, 8054, 9999, desired.ProbePort, desired.FeedPort, 4806, 4808, desired.VXLANPort))
		if p.Protocol == "udp" && p.From == Tunnel && rng.IntN(2) == 0 {
			sport = uint16(pick(rng, 53, 54))
		}
		if slices.Contains(w.fabric.DNS.Addresses(), dst) {
			dport = uint16(pick(rng, 53, 9999))
		}
		if p.Protocol == "icmp" {
			dport = 0
		}
		p.Src, p.Dst = netip.AddrPortFrom(src, sport), netip.AddrPortFrom(dst, dport)
		return p
	}
}

// target is an address that means something to somebody.
func (w *world) target(rng *rand.Rand) netip.Addr {
	var all []netip.Addr
	add := func(list ...netip.Addr) { all = append(all, list...) }
	for _, e := range w.fabric.Exports {
		add(e.VIPs...)
		for _, part := range e.Clusters {
			add(part.IPs...)
			for _, h := range part.Hosts {
				add(h.IPs...)
			}
		}
	}
	if rng.IntN(2) == 0 {
		return pick(rng, append(all, w.pods...)...)
	}
	add(w.pods...)
	for _, c := range w.fabric.Clusters {
		for _, g := range c.Gateways {
			add(g.Addresses...)
		}
		add(c.EgressIPs...)
		for _, p := range slices.Concat(c.GlobalCIDRs, c.PodCIDRs, c.ServiceCIDRs) {
			add(nth(p, 258), nth(p, 200))
		}
	}
	add(w.mapped()...)
	for _, p := range slices.Concat(w.fabric.ServicePools, w.fabric.GlobalPools) {
		add(nth(p, 60000))
	}
	return pick(rng, all...)
}

// mapped gives the addresses by which other clusters know pods that have no other.
func (w *world) mapped() []netip.Addr {
	var out []netip.Addr
	for _, m := range w.fabric.Cluster(own).Mappings {
		for _, pod := range w.pods {
			if m.Pods.Contains(pod) {
				out = append(out, moved(pod, m.Global))
			}
		}
	}
	return out
}

// source is an address of the target's family that whoever stands at the place can
// send with: WireGuard holds other clusters to their own.
func (w *world) source(rng *rand.Rand, p *Packet, dst netip.Addr) (netip.Addr, bool) {
	var all []netip.Addr
	switch p.From {
	case Tunnel:
		var others []string
		for _, c := range w.fabric.Clusters {
			if c.Name != own {
				others = append(others, c.Name)
			}
		}
		p.Cluster = pick(rng, others...)
		w.via(rng, p)
		c := w.fabric.Cluster(p.Cluster)
		all = append(all, c.Gateways[0].Addresses...)
		if slices.Contains(w.fabric.Cluster(own).Gateways[0].Addresses, dst) && rng.IntN(2) == 0 {
			break
		}
		all = append(all, c.EgressIPs...)
		for _, x := range c.GlobalCIDRs {
			all = append(all, nth(x, 200))
		}
		for _, x := range c.PodCIDRs {
			if w.seen(c, x) {
				all = append(all, nth(x, 777))
			}
		}
		for _, e := range w.fabric.Exports {
			if part := e.ClusterPart(p.Cluster); part != nil {
				all = append(all, part.IPs...)
				for _, h := range part.Hosts {
					all = append(all, h.IPs...)
				}
			}
		}
	case Pod:
		all = w.pods
	case Node:
		all = slices.Clone(w.worker)
		for _, x := range w.fabric.Cluster(own).PodCIDRs {
			all = append(all, nth(x, 888))
		}
	case Neighbor:
		all = []netip.Addr{addr("192.0.2.99"), addr("198.51.100.7"), addr("2001:db8::99")}
		for _, c := range w.fabric.Clusters { // which it does not have
			all = append(all, c.EgressIPs...)
		}
	}
	fits := slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return fabric.Family(a) != fabric.Family(dst) })
	if len(fits) == 0 {
		return netip.Addr{}, false
	}
	return pick(rng, fits...), true
}
