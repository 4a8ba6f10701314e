package objects

import (
	"context"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// Front is the EndpointSlice by which the Service of a gateway leads to the node that is
// the gateway now. The Service has no selector, as all agents of gateways are alike.
type Front struct {
	Service string
	Type    string // IPv4 | IPv6
	Node    string
	Address string
	Ports   []mcs.Port
}

// Key is namespace/name.
func (f Front) Key() string { return fabric.ServiceNamespace + "/" + f.name() }

func (f Front) name() string {
	return f.Service + map[string]string{"IPv4": "-4", "IPv6": "-6"}[f.Type]
}

// Fields gives everything else.
func (f Front) Fields() []diff.Field {
	return []diff.Field{
		{Name: "service", Value: f.Service},
		{Name: "node", Value: f.Node},
		{Name: "address", Value: f.Address},
		{Name: "ports", Value: portText(f.Ports)},
	}
}

// FrontsOf gives those of a cluster's gateways that are found by a Service which is there,
// and whose node is known.
func FrontsOf(own *fabric.Cluster, facts model.Facts) []Front {
	var out []Front
	for i := range own.Gateways {
		g := &own.Gateways[i]
		n := slices.IndexFunc(facts.Nodes, func(n model.Node) bool { return n.Name == g.Node })
		s := slices.IndexFunc(facts.Services, func(s model.Service) bool {
			return s.Namespace == fabric.ServiceNamespace && s.Name == fabric.ServiceOf(g.Name)
		})
		if !g.Fronted() || n < 0 || s < 0 {
			continue
		}
		front := Front{Service: fabric.ServiceOf(g.Name), Node: g.Node}
		for _, p := range facts.Services[s].Ports {
			front.Ports = append(front.Ports, mcs.Port{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
		}
		for _, a := range facts.Nodes[n].Addrs {
			front.Type, front.Address = familyOf(a), a.String()
			out = append(out, front)
		}
	}
	return out
}

func familyOf(a netip.Addr) string {
	if a.Is6() {
		return "IPv6"
	}
	return "IPv4"
}

// frontKind is the kind of these EndpointSlices.
type frontKind struct{ *marked[Front] }

// Name tells them from the EndpointSlices of imports.
func (frontKind) Name() string { return "endpointslice of a gateway" }

// newFronts makes the kind; all are the EndpointSlices that say that we keep them.
func newFronts(turn *turn, table *table) frontKind {
	return frontKind{&marked[Front]{
		turn: turn, table: table, have: haveFront,
		write: func(ctx context.Context, c diff.Change[Front], seen *unstructured.Unstructured) error {
			o := table.body(fabric.ServiceNamespace, c.Want.name())
			if seen != nil {
				o.SetUID(seen.GetUID())
			}
			o.SetLabels(map[string]string{
				discoveryv1.LabelServiceName: c.Want.Service, discoveryv1.LabelManagedBy: sliceManager, managedBy: manager,
			})
			o.Object["addressType"], o.Object["ports"] = c.Want.Type, portBodies(c.Want.Ports)
			o.Object["endpoints"] = []any{map[string]any{
				"addresses": []any{c.Want.Address}, "nodeName": c.Want.Node, "conditions": map[string]any{"ready": true},
			}}
			return table.apply(ctx, o, seen != nil)
		},
	}}
}

func haveFront(o *unstructured.Unstructured) (Front, error) {
	have, err := read[discoveryv1.EndpointSlice](o)
	if err != nil {
		return Front{}, err
	}
	out := Front{Service: have.Labels[discoveryv1.LabelServiceName], Type: string(have.AddressType)}
	for _, p := range have.Ports {
		out.Ports = append(out.Ports, mcs.Port{Name: optional(p.Name), Protocol: string(*orDefault(p.Protocol, "TCP")), Port: int(*orDefault(p.Port, 0))})
	}
	for _, e := range have.Endpoints {
		if e.Conditions.Ready != nil && *e.Conditions.Ready && len(e.Addresses) == 1 && len(have.Endpoints) == 1 {
			out.Node, out.Address = optional(e.NodeName), e.Addresses[0]
		}
	}
	return out, nil
}

// isFront reports whether an EndpointSlice is that of a Service of ours.
func isFront(o *unstructured.Unstructured) bool {
	return o.GetNamespace() == fabric.ServiceNamespace && o.GetLabels()[discoveryv1.LabelServiceName] != ""
}

// only gives those of a list that fit.
func only(list List, fits func(*unstructured.Unstructured) bool) List {
	return func() ([]*unstructured.Unstructured, bool) {
		all, known := list()
		return slices.DeleteFunc(slices.Clone(all), func(o *unstructured.Unstructured) bool { return !fits(o) }), known
	}
}
