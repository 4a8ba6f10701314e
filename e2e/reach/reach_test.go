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

// arrivalTimeout bounds the wait for a packet that must arrive.
const arrivalTimeout = 2 * time.Second

// number reads a number from the environment, as set by make reach.
func number(t *testing.T, name string, byDefault int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return byDefault
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q is not a number", name, text)
	}
	return n
}

// TestReach tests that a gateway's rules handle packets of all kinds, from all points, including
// spoofed ones, as Allowed decides for the topology.
func TestReach(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	seed := number(t, "SEED", 1)
	topologies, packets := number(t, "TOPOLOGIES", 20), number(t, "PACKETS", 1000)
	s := newSpace(t)
	counts := map[Point]map[Point]int{}
	const through = Point("through") // in counts: forwarded by a neighbour cluster
	accepted := map[bool]int{}       // number of ICMP errors, by whether they must arrive
	id := uint32(1)
	for n := range topologies {
		rng := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
		w := newWorld(t, rng)
		s.apply(w.state, w.node, w.fabric.Cluster(own).PodCIDRs)
		set, facts := reach.New(w.fabric), backends(w.facts)
		for range packets / topologies {
			p := w.packet(rng)
			id++
			want := set.Allowed(facts, own, p)
			bytes := raw(p, id)
			if p.Via != "" {
				from, to := w.transitAddrs(p.Via)
				bytes = encapsulate(bytes, from, to, s.mac)
			}
			out := s.send(p.From, bytes)
			for start := time.Now(); want.To != Dropped && len(out) == 0 && time.Since(start) < arrivalTimeout; {
				out = s.drain() // a busy kernel may need more time
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
				if got := s.sendError(e, id, arrives); got != arrives {
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
		t.Errorf("want ICMP errors that arrive and errors that do not, got %v", accepted)
	}
	// Without arrived and dropped packets from each point, the test would prove nothing.
	for _, from := range []Point{Tunnel, through, Pod, Node} {
		if packets >= 1000 && (counts[from][Dropped] == 0 || len(counts[from]) < 2) {
			t.Errorf("from %s: %v", from, counts[from])
		}
	}
}

// unclaimed reports whether a packet left the gateway as it would without Hawser. The device
// between nodes has a route for addresses of the host's own processes, which no node has. Packets
// to addresses outside the clusterset follow the default route.
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

// differs describes how the kernel's result differs from the verdict, or returns an empty string.
func (w *world) differs(p Packet, want Verdict, out []seen, id uint32) string {
	arrived := false
	for _, o := range out {
		if o.id != id || o.protocol == "reset" || o.protocol == "icmp error" {
			// Answers of the kernel: pods and nodes get an error for rejected packets.
			if (p.From == Neighbor || p.From == Tunnel && want.To != Host) && o.at == p.From {
				return "the sender got an answer: " + o.protocol
			}
			continue
		}
		switch {
		case want.To == Host && o.dst.Addr() == p.Src.Addr() && (o.at == p.From || p.From == Node && o.at == Pod):
			continue // the gateway answers; a pod of another node by the CNI's route
		case want.To == Service && o.at == Neighbor: // without kube-proxy nothing translates it
		case want.To == Dropped || o.at != want.To:
			return "it left at " + string(o.at)
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
				return "its next gateway is " + o.via.String() + ", want " + next.String()
			}
		}
		src := o.src.Addr()
		// Between pods the node may translate the source, as kube-proxy does.
		if want.To == Pod && p.From != Tunnel {
			arrived = true
			continue
		}
		if len(want.Srcs) == 0 && src != p.Src.Addr() || len(want.Srcs) > 0 && !slices.Contains(want.Srcs, src) {
			return "its source is " + src.String()
		}
		arrived = true
	}
	if want.To != Dropped && !arrived {
		return "it did not arrive"
	}
	return ""
}

// packet draws a packet: a point, a source address that a sender there has or spoofs, and a
// target.
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

// target draws an address with a meaning in the clusterset.
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

// mapped returns the mapped global addresses of the pods.
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

// source draws a source address of the target's family that a sender at the point can use:
// WireGuard restricts other clusters to their own addresses.
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
		for _, c := range w.fabric.Clusters { // spoofed
			all = append(all, c.EgressIPs...)
		}
	}
	fits := slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return fabric.Family(a) != fabric.Family(dst) })
	if len(fits) == 0 {
		return netip.Addr{}, false
	}
	return pick(rng, fits...), true
}
