package project

import (
	"cmp"
	"net/netip"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// Reach is what is known of where a gateway of another cluster is reached.
type Reach struct {
	Cluster    string
	Gateway    *fabric.Gateway
	Driver     string
	Candidates []model.Candidate // in order of preference; none = it dials in
	// Named says that there is an endpoint whose address may change.
	Named bool
}

// Reaches gives the gateways of other clusters to which this node has links, in
// the order of the fabric; none where this node is no gateway.
func Reaches(in Input) []Reach {
	v := newView(in)
	if v == nil || v.gateway == nil {
		return nil
	}
	var out []Reach
	for _, r := range v.remotes {
		link := in.Fabric.Link(v.own.Name, r.Name)
		for i := range r.Gateways {
			g := &r.Gateways[i]
			reach := Reach{
				Cluster: r.Name, Gateway: g, Driver: link.Driver, Candidates: v.candidates(g, v.usual(link, g).Remote),
			}
			for _, text := range g.Endpoints {
				e, err := fabric.ParseEndpoint(text)
				reach.Named = reach.Named || err == nil && e.Name != ""
			}
			out = append(out, reach)
		}
	}
	return out
}

// candidates gives the places of a gateway in order of preference: an address as
// it is, a name once it is resolved. Those that this node cannot send to are left
// out. port is the gateway's own where an endpoint has none.
func (v *view) candidates(g *fabric.Gateway, port int) []model.Candidate {
	var out []model.Candidate
	for _, text := range g.Endpoints {
		e, err := fabric.ParseEndpoint(text)
		if err != nil {
			continue
		}
		addrs := []netip.Addr{e.Addr}
		if e.Name != "" {
			addrs = v.in.Local.Resolved[fabric.Endpoint{Name: e.Name}.String()]
		}
		for _, a := range addrs {
			if v.canSendTo(a) {
				out = append(out, model.Candidate{Text: text, Addr: netip.AddrPortFrom(a, uint16(cmp.Or(e.Port, port)))})
			}
		}
	}
	return out
}
