package reach

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/reach"
	"hawser.dev/hawser/schema/load"
)

// world is one topology, with the objects of the cluster whose gateway is tested.
type world struct {
	text   string
	fabric *fabric.Fabric
	facts  model.Facts
	state  desired.State
	node   []netip.Addr        // addresses of the gateway's node
	worker []netip.Addr        // addresses of the cluster's other node
	pods   []netip.Addr        // existing pods; packets may have other sources
	paths  map[string][]string // by cluster: the clusters on the path to it, itself last
}

const own = "a"

// newWorld draws a topology. The clusters have equal or different prefixes of one or two families.
// Egress is mapped or shared, with or without direct packets between nodes. Exports of both types
// are for all or some clusters.
func newWorld(t *testing.T, rng *rand.Rand) *world {
	t.Helper()
	w := &world{}
	dual := rng.IntN(2) == 0
	clusters := []string{"a", "b", "c", "d"}[:2+rng.IntN(3)]
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line("apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata: {name: reach}\nspec:")
	line("  globalnet: {egress: %s}", pick(rng, "auto", "shared", "auto"))
	if shape := shapeOf(rng, clusters); shape != "" {
		line("  connectivity: {%s}", shape)
	}
	dynamic := rng.IntN(2) == 0
	if dynamic {
		line("  dynamicExports:\n  - {namespaces: [open]}\n  - {namespaces: [kept], clusters: [%s]}", pick(rng, clusters...))
	}
	line("  clusters:")
	for i, name := range clusters {
		pods, services := "10.7.0.0/16", "10.77.0.0/16"
		if rng.IntN(2) == 0 {
			pods, services = fmt.Sprintf("10.%d.0.0/16", 20+i), fmt.Sprintf("10.%d.0.0/16", 120+i)
		}
		if dual {
			six := 7
			if rng.IntN(2) == 0 {
				six = 20 + i
			}
			pods += fmt.Sprintf(", fd00:%d:7::/48", six)
			services += fmt.Sprintf(", fd00:%d:77::/112", six)
		}
		line("  - name: %s\n    podCIDRs: [%s]\n    serviceCIDRs: [%s]", name, pods, services)
		if rng.IntN(4) == 0 {
			line("    globalnet: always")
		}
		line("    nodeNetwork: %s", pick(rng, "auto", "tunnel"))
		line("    recipient: age1c4qh3aws6qp9yjn53gugn2gpfurpcw2rj65zquuj0jmj87zmwcjs3mhndp")
		line("    gateways: [{name: gw, node: %s-gw, endpoints: [203.0.113.%d]}]", name, 11+i)
	}
	line("  exports:")
	for i := range 1 + rng.IntN(5) {
		line("  - name: s%d\n    namespace: shop", i)
		exporters := []string{}
		for _, name := range clusters {
			if rng.IntN(2) == 0 {
				exporters = append(exporters, name)
			}
		}
		if len(exporters) == 0 {
			exporters = []string{own}
		}
		line("    clusters: [%s]", strings.Join(exporters, ", "))
		if rng.IntN(3) == 0 {
			line("    type: Headless\n    hostnames: %d", 1+rng.IntN(2))
		}
		if rng.IntN(2) == 0 {
			allowed := []string{}
			for _, name := range clusters {
				if rng.IntN(2) == 0 {
					allowed = append(allowed, name)
				}
			}
			line("    allow: {clusters: [%s]}", strings.Join(allowed, ", "))
		}
		line("    ports: [{name: web, port: %d}, {name: dns, port: %d, protocol: UDP}]", 80+rng.IntN(2), 53+rng.IntN(2))
	}
	w.text = out.String()
	w.compile(t)
	w.addPods(rng)
	if dynamic {
		w.addServiceExports(rng)
	}
	w.project()
	return w
}

// shapeOf draws the links between clusters: a mesh, a hub, or a chain.
func shapeOf(rng *rand.Rand, clusters []string) string {
	order := slices.Clone(clusters)
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	switch rng.IntN(4) {
	case 0:
		return "mode: hub, hubs: [" + order[0] + "]"
	case 1:
		var links []string
		for i := range order[1:] {
			links = append(links, fmt.Sprintf("[%s, %s]", order[i], order[i+1]))
		}
		return "mode: links, links: [" + strings.Join(links, ", ") + "]"
	}
	return ""
}

// addServiceExports adds ServiceExports in namespaces that are open to all clusters, open to one
// cluster, and closed.
func (w *world) addServiceExports(rng *rand.Rand) {
	c := w.fabric.Cluster(own)
	for i, namespace := range []string{"open", "kept", "closed"} {
		target := map[string]int{"TCP/80": 8080, "UDP/53": 8053}
		ep := model.Endpoint{Node: "a-gw", Pod: "x-0", Ready: true, Ports: target}
		for _, p := range c.PodCIDRs {
			ep.Addrs = append(ep.Addrs, nth(p, 512+i))
		}
		w.pods = append(w.pods, ep.Addrs...)
		w.facts.Services = append(w.facts.Services, model.Service{
			Namespace: namespace, Name: "made", Endpoints: []model.Endpoint{ep},
			Ports: []model.ServicePort{{Name: "web", Protocol: "TCP", Port: 80}, {Name: "dns", Protocol: "UDP", Port: 53}},
		})
		svc := &mcs.Service{Type: "ClusterIP", Headless: rng.IntN(3) == 0, Ports: []mcs.Port{{Name: "web", Protocol: "TCP", Port: 80}, {Name: "dns", Protocol: "UDP", Port: 53}}}
		for _, fam := range []int{4, 6} {
			if c.Has(fam) {
				svc.Families = append(svc.Families, fam)
			}
		}
		w.facts.Exports = append(w.facts.Exports, mcs.Export{
			Namespace: namespace, Name: "made", UID: namespace, Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Service: svc,
		})
	}
	slices.SortFunc(w.facts.Exports, func(a, b mcs.Export) int { return strings.Compare(a.Namespace, b.Namespace) })
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

func (w *world) compile(t *testing.T) {
	t.Helper()
	top, _, list := load.Topology("clusterset.yaml", []byte(w.text))
	if err := list.Err(); err != nil {
		t.Fatalf("%v\n%s", err, w.text)
	}
	lock, list := allocate.Allocate(top, nil)
	if err := list.Err(); err != nil {
		t.Fatalf("%v\n%s", err, w.text)
	}
	root, err := keys.ReadRoot(bytes.Repeat([]byte{7}, keys.RootSize))
	if err != nil {
		t.Fatal(err)
	}
	tree, list := render.Render(render.Input{Topology: top, Lock: lock, Root: root})
	if err := list.Err(); err != nil {
		t.Fatalf("%v\n%s", err, w.text)
	}
	if w.fabric, err = render.FabricOf(tree); err != nil {
		t.Fatal(err)
	}
}

// addPods adds the nodes, and pods behind each export of the cluster.
func (w *world) addPods(rng *rand.Rand) {
	c := w.fabric.Cluster(own)
	w.node, w.worker = []netip.Addr{addr("192.0.2.11")}, []netip.Addr{addr("192.0.2.12")}
	if c.Has(6) {
		w.node, w.worker = append(w.node, addr("2001:db8::11")), append(w.worker, addr("2001:db8::12"))
	}
	w.facts.Nodes = []model.Node{{Name: "a-gw", Addrs: w.node}, {Name: "a-w1", Addrs: w.worker}}
	next := 0
	for i := range w.fabric.Exports {
		e := &w.fabric.Exports[i]
		if e.ClusterPart(own) == nil {
			continue
		}
		svc := model.Service{Namespace: e.Namespace, Name: e.Name}
		target := map[string]int{}
		for _, p := range e.Ports {
			svc.Ports = append(svc.Ports, model.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
			target[reach.PortID(p)] = p.Port + 8000
		}
		for n := range rng.IntN(3) {
			next++
			ep := model.Endpoint{Node: "a-gw", Pod: fmt.Sprintf("p-%d", n), Hostname: fmt.Sprintf("p-%d", n), Ready: rng.IntN(6) > 0 || e.Type == fabric.Headless, Ports: target}
			for _, p := range c.PodCIDRs {
				ep.Addrs = append(ep.Addrs, nth(p, 256+next))
			}
			w.pods = append(w.pods, ep.Addrs...)
			svc.Endpoints = append(svc.Endpoints, ep)
		}
		w.facts.Services = append(w.facts.Services, svc)
	}
	for _, p := range c.PodCIDRs {
		w.pods = append(w.pods, nth(p, 777)) // a client
	}
}

func (w *world) project() {
	in := projection.Input{
		Fabric: w.fabric, Cluster: own, Node: "a-gw", Facts: w.facts, Paths: map[string]model.Path{}, GatewayPaths: map[string]model.Path{},
		Keys: &fabric.Keys{APIVersion: fabric.KeysAPIVersion, Cluster: own, Epochs: []fabric.EpochKeys{{
			Epoch: w.fabric.Epochs[0], PSKSeed: fabric.Secret{1}, Gateways: map[string]fabric.Secret{"gw": {1}}, Ed25519: map[string]fabric.Secret{"gw": {1}},
		}}},
		Local: model.HostState{UnderlayMTU: 1500},
	}
	if w.fabric.Cluster(own).TestsDirect() {
		// Direct packets are accepted from the worker's hardware address only, which no packet of the test has.
		for i, a := range w.worker {
			in.Direct = append(in.Direct, model.DirectNode{Node: "a-w1", Addr: a, Device: linkUplink, MAC: "02:00:00:00:00:12", Active: i == 0})
		}
	}
	w.paths = w.fabric.Graph().Paths(own, nil)
	for name, clusters := range w.paths {
		path := model.Path{Local: "gw", Remote: "gw"}
		if clusters[0] != name {
			path.Via = clusters[0]
		}
		in.Paths[name], in.GatewayPaths[name] = path, path
	}
	effective, decision := projection.EffectiveFabric(in)
	in.Fabric, in.MCSDecision = effective, decision
	w.fabric = effective
	w.state, _ = projection.Desired(in)
}

// transitAddrs returns the tunnel addresses of a neighbour's gateway and of this one for transit
// packets: of the first family of this gateway that both have.
func (w *world) transitAddrs(cluster string) (remote, local netip.Addr) {
	for _, local := range w.fabric.Cluster(own).Gateways[0].Addresses {
		for _, remote := range w.fabric.Cluster(cluster).Gateways[0].Addresses {
			if remote.Is4() == local.Is4() {
				return remote, local
			}
		}
	}
	return netip.Addr{}, netip.Addr{}
}

// next returns the next gateway of a packet to an address of another cluster. It returns the zero
// address for a neighbour cluster, which gets the packet without encapsulation. Transit packets are
// encapsulated also to neighbours.
func (w *world) next(dst netip.Addr, isTransit bool) netip.Addr {
	for i := range w.fabric.Clusters {
		c := &w.fabric.Clusters[i]
		if c.Name == own || !w.sends(c, dst) && !inAny(c.ServiceCIDRs, dst) && !slices.Contains(c.Gateways[0].Addresses, dst) {
			continue
		}
		if path := w.paths[c.Name]; isTransit || path[0] != c.Name {
			gateway, _ := w.transitAddrs(path[0])
			return gateway
		}
	}
	return netip.Addr{}
}

// via draws the cluster that forwards a packet: none, over the sender's own link, or a neighbour,
// usually the first on the path.
func (w *world) via(rng *rand.Rand, p *Packet) {
	graph := w.fabric.Graph()
	if projection.IsMesh(w.fabric.Shape) {
		return
	}
	if graph.Linked(own, p.Cluster) && rng.IntN(2) == 0 {
		return
	}
	p.Via = pick(rng, w.paths[p.Cluster][0], w.paths[p.Cluster][0], pick(rng, graph.Neighbors(own)...))
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// nth returns the nth address of a prefix, n below 65536.
func nth(p netip.Prefix, n int) netip.Addr {
	raw := p.Masked().Addr().AsSlice()
	raw[len(raw)-2] |= byte(n >> 8)
	raw[len(raw)-1] |= byte(n)
	out, _ := netip.AddrFromSlice(raw)
	return out
}
