package lab

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hawser.dev/hawser/lab/underlayspec"
	"hawser.dev/hawser/lab/workload"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
)

// desiredLab is the desired state of the lab.
type desiredLab struct {
	lan      netip.Prefix // of the nodes in every cluster
	lan6     netip.Prefix
	hosts    map[string]netip.Addr // by endpoint name
	clusters []clusterPlan
	nodes    []node
	sites    []routerSpec
	file     *underlayspec.File
	problems []string // problems of pods and services that cannot be placed
}

// clusterPlan is a cluster with placed pods and Services.
type clusterPlan struct {
	cluster
	number   int // number in the name of its bridge in the underlay
	pods     []pod
	services []service
	exports  []*workload.ServiceExport
}

// node is a machine of a cluster.
type node struct {
	cluster         string
	name            string
	gateway         bool // a gateway in the topology, or a candidate by its labels
	labels          map[string]string
	hasWAN          bool           // whether it is or was a gateway: it has the wide-area interface
	number          int            // number in the names of its underlay links
	lan             []netip.Addr   // one per family
	wan             []netip.Addr   // wide-area addresses: of the gateway's endpoints
	site            string         // router of the wide-area uplink; empty = none
	bridge          string         // bridge of the wide-area interface
	overlay         bool           // whether pods are on one network, and not behind their node
	podCIDRs        []netip.Prefix // prefixes of this node
	clusterPodCIDRs []netip.Prefix // all pod prefixes of the cluster
	services        []netip.Prefix // all service prefixes of the cluster
}

// pod is a placed pod.
type pod struct {
	workload.Pod
	cluster string
	node    string
	addrs   []netip.Addr
	ready   bool
}

// service is a Service with its addresses and backends.
type service struct {
	*corev1.Service
	addrs    []netip.Addr // none for a headless Service
	backends []backend
}

// backend is a pod of a Service with its ports.
type backend struct {
	pod   *pod
	ports []workload.ServicePort
	ready bool // as an endpoint: the pod is ready, or the Service publishes not-ready addresses
}

func (n *node) id() string { return n.cluster + "/" + n.name }
func (p *pod) id() string  { return p.cluster + "/" + p.ID() }

func clusterOf(id string) string { return strings.SplitN(id, "/", 2)[0] }

// plan computes the desired lab from the topology and the workloads. It stores assignments in s, so
// that the next plan makes the same ones.
func plan(t topology, sets map[string]*workload.Set, workers int, s *state) (*desiredLab, error) {
	w := &desiredLab{hosts: map[string]netip.Addr{}, file: &s.Underlay}
	if !s.LAN.IsValid() {
		lan, err := chooseLAN(t)
		if err != nil {
			return nil, err
		}
		s.LAN = lan
	}
	w.lan, w.lan6 = s.LAN, netip.MustParsePrefix("fd00:172:18::/64")
	for _, c := range t.clusters {
		if err := w.addNodes(c, workers, s); err != nil {
			return nil, err
		}
	}
	w.retainWANInterfaces(s)
	if err := w.addSites(s); err != nil {
		return nil, err
	}
	for _, c := range t.clusters {
		set := sets[c.name]
		if set == nil {
			set = &workload.Set{}
		}
		w.clusters = append(w.clusters, w.planCluster(c, set, s))
	}
	return w, nil
}

// retainWANInterfaces keeps the wide-area interfaces of former gateways, so that their existing
// traffic continues. It keeps only addresses that no current gateway has.
func (w *desiredLab) retainWANInterfaces(s *state) {
	taken := map[netip.Addr]bool{}
	for i := range w.nodes {
		n := &w.nodes[i]
		if !n.gateway {
			continue
		}
		n.hasWAN = true
		s.NICs[n.id()] = n.wan
		for _, addr := range n.wan {
			taken[addr] = true
		}
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if had, hadWAN := s.NICs[n.id()]; hadWAN && !n.gateway {
			n.hasWAN = true
			n.wan = slices.DeleteFunc(slices.Clone(had), func(a netip.Addr) bool { return taken[a] })
		}
	}
}

// addNodes adds a node for each gateway, the workers, and a worker for each former gateway's node.
func (w *desiredLab) addNodes(c cluster, workers int, s *state) error {
	byName := map[string]*node{}
	newest := len(s.nodesOf(c.name)) > 0
	var order []string
	add := func(name string) *node {
		if byName[name] == nil {
			byName[name] = &node{cluster: c.name, name: name, clusterPodCIDRs: c.podCIDRs, services: c.serviceCIDRs, bridge: "wan", overlay: s.Overlay}
			if router := w.file.Of(c.name, name); router != nil {
				byName[name].site = router.Name
			}
			order = append(order, name)
		}
		return byName[name]
	}
	for _, g := range gatewaysWithNodes(c) {
		n := add(cmp.Or(g.Node, g.Name))
		n.gateway, n.labels = true, g.NodeSelector
		addrs, err := w.endpoints(n, g, s)
		if err != nil {
			return fmt.Errorf("gateway %s/%s: %w", c.name, g.Name, err)
		}
		n.wan = append(n.wan, addrs...)
	}
	for i := range workers {
		add(fmt.Sprintf("%s-w%d", c.name, i+1))
	}
	for _, id := range s.nodesOf(c.name) {
		add(strings.TrimPrefix(id, c.name+"/"))
	}
	for _, name := range order {
		n := byName[name]
		if err := w.number(n, s, newest); err != nil {
			return fmt.Errorf("node %s: %w", n.id(), err)
		}
		w.nodes = append(w.nodes, *n)
	}
	return nil
}

// gatewaysWithNodes returns the gateways of a cluster with one node each. If gateways are selected
// by labels, one more node than gateways has the labels: <cluster>-<gateway>-a, -b and so on. These
// gateways only dial out.
func gatewaysWithNodes(c cluster) []schema.Gateway {
	var out []schema.Gateway
	for _, g := range c.gateways {
		if len(g.NodeSelector) == 0 {
			out = append(out, g)
			continue
		}
		for i := range min(g.Size()+1, 26) {
			node := fmt.Sprintf("%s-%s-%c", c.name, g.Name, 'a'+i)
			out = append(out, schema.Gateway{Name: node, Node: node, NodeSelector: g.NodeSelector, Port: g.Port})
		}
	}
	return out
}

// number assigns a node's slot and addresses. Pods of a node that joins later are in the newest
// prefix.
func (w *desiredLab) number(n *node, s *state, newest bool) error {
	n.number = s.number(n.id())
	slot := s.slot(n.cluster, n.name)
	shares, err := s.share(n, slot, newest)
	if err != nil {
		return err
	}
	n.podCIDRs = shares
	var prefixes []netip.Prefix
	four, six := families(n.clusterPodCIDRs)
	if four {
		prefixes = append(prefixes, w.lan)
	}
	if six {
		prefixes = append(prefixes, w.lan6)
	}
	for _, lan := range prefixes {
		addr, err := nth(lan, slot+2)
		if err != nil {
			return err
		}
		n.lan = append(n.lan, addr)
	}
	return nil
}

// endpoints returns the addresses of a gateway in the underlay. Names, and gateways without an
// endpoint, get an address of the benchmarking range (RFC 2544). The name of a gateway behind a
// translating router resolves to the router's address.
func (w *desiredLab) endpoints(n *node, g schema.Gateway, s *state) ([]netip.Addr, error) {
	router := w.file.Named(n.site)
	four, _ := families(n.clusterPodCIDRs)
	var out []netip.Addr
	for _, endpoint := range g.Endpoints {
		if fabric.IsEndpointSource(endpoint) {
			continue
		}
		addr, name, err := literal(endpoint)
		if err != nil {
			return nil, err
		}
		switch {
		case name != "" && router != nil && router.NAT != "":
			addr = router.Addresses[0]
		case name != "":
			if addr, err = s.wanAddr(endpoint, !four); err != nil {
				return nil, err
			}
		}
		if name != "" {
			w.hosts[name] = s.now([]netip.Addr{addr})[0]
		}
		out = append(out, addr)
	}
	var err error
	switch {
	case router != nil:
		out, err = s.behind(router, n.id(), out)
	case len(out) == 0:
		out = make([]netip.Addr, 1)
		out[0], err = s.wanAddr(n.cluster+"/"+g.Name, !four)
	}
	return s.now(out), err
}

// wanAddr returns the address of a name, or assigns the next address of the benchmarking ranges
// (RFC 2544, RFC 5180), which no topology uses.
func (s *state) wanAddr(name string, six bool) (netip.Addr, error) {
	if addr, known := s.WAN[name]; known {
		return addr, nil
	}
	taken := map[netip.Addr]bool{}
	for _, addr := range s.WAN {
		taken[addr] = true
	}
	prefix := netip.MustParsePrefix("198.18.0.0/15")
	if six {
		prefix = netip.MustParsePrefix("2001:2::/48")
	}
	addr, err := freeAddr(prefix, 1, taken)
	if err != nil {
		return addr, err
	}
	s.WAN[name] = addr
	return addr, nil
}

func (w *desiredLab) node(id string) *node {
	i := slices.IndexFunc(w.nodes, func(n node) bool { return n.id() == id })
	if i < 0 {
		return nil
	}
	return &w.nodes[i]
}

// nodesOf returns a cluster's nodes, gateways first.
func (w *desiredLab) nodesOf(cluster string) []node {
	return slices.DeleteFunc(slices.Clone(w.nodes), func(n node) bool { return n.cluster != cluster })
}

// pods returns the pods of all clusters.
func (w *desiredLab) pods() []pod {
	var out []pod
	for _, c := range w.clusters {
		out = append(out, c.pods...)
	}
	return out
}
