package discover

import (
	"cmp"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/schema/fabric"
)

// firstGateways is the number of gateways of a new topology. All of them forward
// traffic, and one may fail.
const firstGateways = 2

// findGateways finds the nodes that can be gateways and selects firstGateways of them.
// Worker nodes come before nodes of the control plane, then nodes with an external
// address, then the order of names. Selected nodes are in different zones if possible.
func (d *analysis) findGateways() {
	for _, n := range d.all("Node") {
		if canBeGateway(&n) {
			d.Gateways = append(d.Gateways, newGateway(&n))
		}
	}
	slices.SortFunc(d.Gateways, func(a, b Gateway) int {
		return cmp.Or(compareBool(a.ControlPlane, b.ControlPlane), cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.Node, b.Node))
	})
	if len(d.Gateways) == 0 {
		d.fail("gateways-unknown", "gateways", "no node can be a gateway: it has to be ready, run Linux and be schedulable",
			"write the gateways' nodes into the topology")
		return
	}
	d.selectGateways()
	best := d.Gateways[0]
	switch {
	case best.ControlPlane:
		d.warn("control-plane-gateways", "gateways", "only nodes of the control plane can be gateways",
			"use other nodes if the gateways forward much traffic")
	case len(best.Endpoints) == 0:
		d.warn("no-endpoints", "gateways", "the nodes have no address in their status, so their gateways only dial out",
			"write the addresses at which other clusters reach them into endpoints")
	}
	if best.Confidence == Guess {
		d.warn("private-endpoints", "gateways", "the gateways' endpoints are private addresses",
			"check that other clusters can reach them; otherwise write other addresses, or leave endpoints out: the "+
				"gateway then only dials out")
	}
}

// selectGateways selects the first of the best nodes, then the best nodes of other zones.
func (d *analysis) selectGateways() {
	best := d.Gateways[0]
	zones, used := map[string]bool{}, 0
	for _, allowSameZone := range []bool{false, true} { // first one per zone, then several
		for i := range d.Gateways {
			g := &d.Gateways[i]
			asGood := g.ControlPlane == best.ControlPlane && g.rank() == best.rank()
			if used == firstGateways || g.Selected || !asGood || zones[g.Zone] && !allowSameZone {
				continue
			}
			g.Selected, zones[g.Zone] = true, true
			used++
		}
	}
}

// canBeGateway reports whether a node can be a gateway.
func canBeGateway(n *unstructured.Unstructured) bool {
	labels := n.GetLabels()
	if !fabric.IsDomain(n.GetName()) || cmp.Or(labels["kubernetes.io/os"], "linux") != "linux" ||
		labels["type"] == "virtual-kubelet" ||
		labels["eks.amazonaws.com/compute-type"] == "fargate" || isTrue(n, "spec", "unschedulable") ||
		n.GetDeletionTimestamp() != nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(n.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(item any) bool {
		c, _ := item.(map[string]any)
		return c["type"] == "Ready" && c["status"] == "True"
	})
}

func newGateway(n *unstructured.Unstructured) Gateway {
	labels := n.GetLabels()
	_, control := labels["node-role.kubernetes.io/control-plane"]
	_, master := labels["node-role.kubernetes.io/master"]
	g := Gateway{Node: n.GetName(), Zone: sanitize(labels["topology.kubernetes.io/zone"]), ControlPlane: control || master}
	if g.Endpoints = addresses(n, "ExternalIP"); len(g.Endpoints) > 0 {
		g.Confidence, g.From, g.External = Likely, "ExternalIP of the Node", true
		return g
	}
	if g.Endpoints = addresses(n, "InternalIP"); len(g.Endpoints) == 0 {
		return g
	}
	g.Confidence, g.From = Likely, "InternalIP of the Node, a public address"
	if !slices.ContainsFunc(g.Endpoints, isPublic) {
		g.Confidence, g.From = Guess, "InternalIP of the Node"
	}
	return g
}

// rank returns the rank of the gateway's endpoints. Lower is better.
func (g *Gateway) rank() int {
	return slices.Index([]Confidence{Certain, Likely, Guess, ""}, g.Confidence)
}

func addresses(n *unstructured.Unstructured, kind string) []netip.Addr {
	var out []netip.Addr
	list, _, _ := unstructured.NestedSlice(n.Object, "status", "addresses")
	for _, item := range list {
		entry, _ := item.(map[string]any)
		text, _ := entry["address"].(string)
		a, err := netip.ParseAddr(text)
		if entry["type"] == kind && err == nil && a.Zone() == "" {
			out = append(out, a)
		}
	}
	return out
}

// isPublic reports whether an address may be reachable from the Internet.
func isPublic(a netip.Addr) bool {
	sharedSpace := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10) // RFC 6598: behind a provider's NAT
	return a.IsGlobalUnicast() && !a.IsPrivate() && !sharedSpace.Contains(a)
}

// compareBool compares booleans: false comes before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
