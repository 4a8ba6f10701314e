package projection

import (
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/peer/endpoint"
	"hawser.dev/hawser/schema/fabric"
)

// EndpointCandidates are the addresses and ports at which a gateway of another cluster may be
// reached.
type EndpointCandidates struct {
	Cluster    string
	Gateway    *fabric.Gateway
	Driver     string
	Candidates []model.Candidate // in order of preference; empty if the gateway dials in
	MayChange  bool              // see endpoint.MayChange
}

// Reaches returns the gateways of other clusters to which this node has links, in the order of
// the fabric. It returns none on a node that is not a gateway.
func Reaches(in Input) []EndpointCandidates {
	v := newBuilder(in)
	if v == nil || v.gateway == nil {
		return nil
	}
	var out []EndpointCandidates
	for _, r := range v.remotes {
		link := in.Fabric.Link(v.self.Name, r.Name)
		for i := range r.Gateways {
			g := &r.Gateways[i]
			out = append(out, EndpointCandidates{
				Cluster: r.Name, Gateway: g, Driver: link.Driver, MayChange: endpoint.MayChange(g),
				Candidates: v.candidates(r.Name, g, link.Driver, v.configuredTunnel(link, g).RemotePort),
			})
		}
	}
	return out
}

// candidates returns the endpoint candidates of a gateway that this node can send to.
func (v *builder) candidates(cluster string, g *fabric.Gateway, driver string, port int) []model.Candidate {
	local := &v.in.Local
	return endpoint.Candidates(g, driver, port, local.Resolved, local.Discovered[cluster+"/"+g.Name], v.canSendTo)
}
