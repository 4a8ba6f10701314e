package validate

import (
	"cmp"
	"fmt"
	"slices"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
)

// portsPerGateway returns the number of consecutive ports that a gateway may use.
func (c *checker) portsPerGateway() int {
	for _, k := range c.links.DistinctTunnels {
		if k.Driver != fabric.DriverWireguard {
			return fabric.GatewayPorts
		}
	}
	return fabric.WireguardPorts
}

// Ports of the agent on every node, UDP or TCP.
const firstAgentPort, lastAgentPort = 4803, 4809

// portRange is a range of UDP ports on which owner listens.
type portRange struct {
	owner       string
	first, last int
}

func (s portRange) String() string {
	if s.first == s.last {
		return fmt.Sprintf("%s's port %d", s.owner, s.first)
	}
	return fmt.Sprintf("%s's ports %d to %d", s.owner, s.first, s.last)
}

func (s portRange) overlaps(o portRange) bool { return s.first <= o.last && o.first <= s.last }

// portRanges returns the ports on which a gateway listens, in order.
func (c *checker) portRanges(cluster *schema.Cluster, g *schema.Gateway) []portRange {
	tunnels := c.links.Tunnels(cluster.Name)
	if len(tunnels) == 0 { // it has no link yet
		tunnels = c.links.DistinctTunnels[:1]
	}
	var out []portRange
	for _, k := range tunnels {
		base := cmp.Or(k.Port, c.set.GatewayPort(cluster, g))
		switch k.Driver {
		case fabric.DriverWireguard:
			out = append(out, portRange{"WireGuard", base, base + fabric.WireguardPorts - 1})
		case fabric.DriverVXLAN:
			out = append(out, portRange{"VXLAN", fabric.VXLANPort(base, false), fabric.VXLANPort(base, true)})
		case fabric.DriverIPsec:
			ports := &c.set.Spec.Tunnel.IPsec
			out = append(out, portRange{"IPsec", ports.IKEPort, ports.IKEPort}, portRange{"IPsec", ports.NATPort, ports.NATPort})
		}
	}
	slices.SortFunc(out, func(a, b portRange) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last), cmp.Compare(a.owner, b.owner))
	})
	return slices.Compact(out)
}

// gatewayPorts checks that the ports of a gateway and its agent do not overlap.
func (c *checker) gatewayPorts(cluster *schema.Cluster, g *schema.Gateway, path string) {
	agent := portRange{"the agent", firstAgentPort, lastAgentPort}
	spans := append([]portRange{agent}, c.portRanges(cluster, g)...)
	for i, s := range spans {
		for _, o := range spans[:i] {
			if !s.overlaps(o) {
				continue
			}
			hint := fmt.Sprintf("ports that differ must be %d apart", c.portsPerGateway())
			if o.owner == "the agent" {
				hint = "set another port, such as 51820"
			}
			c.Fail("bad-port", path, fmt.Sprintf("%s and %s overlap", o, s), hint)
		}
	}
}

// metrics checks that the agents' metrics port (TCP) is not another port of the agent.
// Tunnels use UDP ports, so equal numbers do not conflict.
func (c *checker) metrics() {
	port := c.set.Spec.Metrics.Port
	if port < firstAgentPort || port > lastAgentPort {
		return
	}
	c.Fail("bad-port", "metrics.port",
		fmt.Sprintf("%d is one of the agent's ports %d to %d", port, firstAgentPort, lastAgentPort),
		"set another port, such as 8474")
}

// listener is a gateway at one endpoint.
type listener struct {
	path    string
	gateway string // path
	port    int    // the first of its ports there
	ike     bool   // it is IPsec's one
}

// bases returns the base ports of a gateway at an endpoint.
func (c *checker) bases(cluster *schema.Cluster, g *schema.Gateway, e fabric.Endpoint) []listener {
	if e.Port != 0 {
		return []listener{{port: e.Port}}
	}
	out := []listener{{port: c.set.GatewayPort(cluster, g)}}
	for _, k := range c.links.Tunnels(cluster.Name) {
		if k.Driver == fabric.DriverIPsec {
			out = append(out, listener{port: c.set.Spec.Tunnel.IPsec.NATPort, ike: true})
		} else if k.Port != 0 {
			out = append(out, listener{port: k.Port})
		}
	}
	return out
}

// listeners holds the listeners at each address, by block of portsPerGateway ports. Two
// listeners with overlapping ports are in the same block or in adjacent blocks.
type listeners map[string]map[int][]listener

// checkPortsDisjoint checks that gateways behind one address have disjoint ports.
func (c *checker) checkPortsDisjoint(used listeners, e fabric.Endpoint, place listener, bases []listener) {
	host, width := e.Host(), c.portsPerGateway()
	blocks := used[host]
	if blocks == nil {
		blocks = map[int][]listener{}
		used[host] = blocks
	}
	for i := range bases {
		bases[i].path, bases[i].gateway = place.path, place.gateway
		for block := bases[i].port/width - 1; block <= bases[i].port/width+1; block++ {
			for _, other := range blocks[block] {
				if c.reportSharedPorts(bases[i], other, host) {
					return
				}
			}
		}
	}
	for _, l := range bases {
		blocks[l.port/width] = append(blocks[l.port/width], l)
	}
}

// reportSharedPorts reports two gateways at one address whose ports overlap.
func (c *checker) reportSharedPorts(l, other listener, host string) bool {
	gap := max(l.port-other.port, other.port-l.port)
	if gap >= c.portsPerGateway() || l.gateway == other.gateway && l.port != other.port || l.ike != other.ike {
		return false
	}
	summary, hint := fmt.Sprintf("%s with port %d is the endpoint of another gateway", host, l.port), ""
	switch {
	case l.ike && gap == 0:
		summary = host + " is the endpoint of another gateway, and both have IPsec there"
		hint = "let a router forward other ports to each, and write the first of them behind its endpoint, as in 192.0.2.1:61820"
	case gap != 0:
		summary = fmt.Sprintf("%s is the endpoint of another gateway with port %d, only %d from %d", host, other.port, gap, l.port)
		hint = fmt.Sprintf("give them ports that are %d apart, because each gateway may use that many", c.portsPerGateway())
	}
	c.Fail("duplicate", l.path, summary, hint, other.path)
	return true
}
