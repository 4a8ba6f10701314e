package apiobjects

import (
	"context"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// GatewaySlice is the EndpointSlice that points the Service of a gateway to its current node. The
// Service has no selector, because the pods of all gateways have the same labels.
type GatewaySlice struct {
	Service string
	Type    string // IPv4 | IPv6
	Node    string
	Address string
	Ports   []mcs.Port
}

// Key returns namespace/name.
func (f GatewaySlice) Key() string { return fabric.SystemNamespace + "/" + f.name() }

func (f GatewaySlice) name() string {
	return f.Service + map[string]string{"IPv4": "-4", "IPv6": "-6"}[f.Type]
}

// Fields returns all fields except the key.
func (f GatewaySlice) Fields() []diff.Field {
	return []diff.Field{
		{Name: "service", Value: f.Service},
		{Name: "node", Value: f.Node},
		{Name: "address", Value: f.Address},
		{Name: "ports", Value: portText(f.Ports)},
	}
}

// GatewaySlicesOf returns the slices of a cluster's gateways that have a Service and a known node.
func GatewaySlicesOf(own *fabric.Cluster, facts model.Facts) []GatewaySlice {
	var out []GatewaySlice
	for i := range own.Gateways {
		g := &own.Gateways[i]
		n := slices.IndexFunc(facts.Nodes, func(n model.Node) bool { return n.Name == g.Node })
		service := facts.GatewayService(g)
		if n < 0 || service == nil {
			continue
		}
		gatewaySlice := GatewaySlice{Service: service.Name, Node: g.Node}
		for _, p := range service.Ports {
			gatewaySlice.Ports = append(gatewaySlice.Ports, mcs.Port{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
		}
		for _, a := range facts.Nodes[n].Addrs {
			gatewaySlice.Type, gatewaySlice.Address = "IPv"+strconv.Itoa(fabric.Family(a)), a.String()
			out = append(out, gatewaySlice)
		}
	}
	return out
}

// gatewaySliceKind is the kind of GatewaySlices.
type gatewaySliceKind struct {
	*ownedKind[GatewaySlice, *discoveryv1.EndpointSlice]
}

// Name distinguishes the kind from the EndpointSlices of imports.
func (gatewaySliceKind) Name() string { return "endpointslice of a gateway" }

// newGatewaySlices returns the kind. table has only EndpointSlices of gateways.
func newGatewaySlices(w *writeContext, table *resourceCache[*discoveryv1.EndpointSlice]) gatewaySliceKind {
	return gatewaySliceKind{&ownedKind[GatewaySlice, *discoveryv1.EndpointSlice]{
		writeContext: w, table: table, decode: observedGatewaySlice,
		write: func(ctx context.Context, c diff.Change[GatewaySlice], seen *discoveryv1.EndpointSlice) error {
			ready := true
			o, err := untyped(&discoveryv1.EndpointSlice{
				TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: table.kind},
				ObjectMeta: metav1.ObjectMeta{
					Namespace: fabric.SystemNamespace, Name: c.Want.name(), UID: uidOf(seen),
					Labels: map[string]string{
						discoveryv1.LabelServiceName: c.Want.Service, discoveryv1.LabelManagedBy: sliceManager, fabric.ManagedByLabel: fabric.ManagedByValue,
					},
				},
				AddressType: discoveryv1.AddressType(c.Want.Type),
				Ports:       desiredPorts(c.Want.Ports),
				Endpoints: []discoveryv1.Endpoint{{
					Addresses: []string{c.Want.Address}, NodeName: filled(c.Want.Node), Conditions: discoveryv1.EndpointConditions{Ready: &ready},
				}},
			})
			if err != nil {
				return err
			}
			return table.apply(ctx, o, seen != nil)
		},
	}}
}

func observedGatewaySlice(have *discoveryv1.EndpointSlice) GatewaySlice {
	out := GatewaySlice{
		Service: have.Labels[discoveryv1.LabelServiceName], Type: string(have.AddressType), Ports: observedPorts(have),
	}
	for _, e := range have.Endpoints {
		if e.Conditions.Ready != nil && *e.Conditions.Ready && len(e.Addresses) == 1 && len(have.Endpoints) == 1 {
			out.Node, out.Address = ptr.Deref(e.NodeName, ""), e.Addresses[0]
		}
	}
	return out
}

// isGatewaySlice reports whether an EndpointSlice belongs to the Service of a gateway.
func isGatewaySlice(o *discoveryv1.EndpointSlice) bool {
	return o.Namespace == fabric.SystemNamespace && o.Labels[discoveryv1.LabelServiceName] != ""
}

// only returns a List of the objects for which fits returns true.
func only[T any](list List[T], fits func(T) bool) List[T] {
	return func() ([]T, bool) {
		all, known := list()
		return slices.DeleteFunc(slices.Clone(all), func(o T) bool { return !fits(o) }), known
	}
}
