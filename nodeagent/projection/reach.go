package projection

import (
	"cmp"
	"net/netip"
	"slices"

	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/schema/fabric"
)

// EndpointCandidates is what is known of where a gateway of another cluster is reached.
type EndpointCandidates struct {
	Cluster    string
	Gateway    *fabric.Gateway
	Driver     string
	Candidates []model.Candidate // in order of preference; none = it dials in
	// Named says that there is an endpoint whose address may change.
	Named bool
}

// Reaches gives the gateways of other clusters to which this node has links, in
// the order of the fabric; none where this node is no gateway.
func Reaches(in Input) []EndpointCandidates {
	v := newView(in)
	if v == nil || v.gateway == nil {
		return nil
	}
	var out []EndpointCandidates
	for _, r := range v.remotes {
		link := in.Fabric.Link(v.own.Name, r.Name)
		for i := range r.Gateways {
			g := &r.Gateways[i]
			reach := EndpointCandidates{
				Cluster: r.Name, Gateway: g, Driver: link.Driver, Candidates: v.candidates(r.Name, g, link.Driver, v.usual(link, g).RemotePort),
			}
			for _, text := range g.Endpoints {
				e, err := fabric.ParseEndpoint(text)
				reach.Named = reach.Named || err == nil && e.Name != "" || fabric.IsEndpointSource(text)
			}
			out = append(out, reach)
		}
	}
	return out
}

// candidates gives the places of a gateway in order of preference: an address as
// it is, a name once it is resolved, and behind those that are written what was found.
// Those that this node cannot send to are left out. port is the gateway's own where an
// endpoint has none. Over VXLAN nothing proves who is at an address, so that only
// endpoints count that are written.
func (v *builder) candidates(cluster string, g *fabric.Gateway, driver string, port int) []model.Candidate {
	var out []model.Candidate
	add := func(text string, a netip.Addr, own int) {
		c := model.Candidate{Text: text, Addr: netip.AddrPortFrom(a, uint16(cmp.Or(own, port)))}
		same := func(o model.Candidate) bool { return o.Addr == c.Addr }
		if v.canSendTo(a) && (!fabric.IsEndpointSource(text) || !slices.ContainsFunc(out, same)) {
			out = append(out, c)
		}
	}
	for _, text := range g.Endpoints {
		e, err := fabric.ParseEndpoint(text)
		switch {
		case err != nil:
		case e.Name == "":
			add(text, e.Addr, e.Port)
		default:
			for _, a := range v.in.Local.Resolved[fabric.Endpoint{Name: e.Name}.String()] {
				add(text, a, e.Port)
			}
		}
	}
	if driver == fabric.DriverVXLAN {
		return out
	}
	written := len(out)
	for _, f := range v.in.Local.Discovered[cluster+"/"+g.Name] {
		add(f.Source, f.Addr, f.Port)
	}
	for i := range out[written:] {
		c := &out[written+i]
		at := c.Addr.Addr().String()
		if int(c.Addr.Port()) != port {
			at = c.Addr.String()
		}
		c.Text = at + " (found: " + c.Text + ")"
	}
	return out
}
