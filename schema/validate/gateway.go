package validate

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/linkconfig"
	"hawser.dev/hawser/schema/overlap"
	"hawser.dev/hawser/schema/syntax"
)

// endpoints checks the endpoints of gateways.
func (c *checker) endpoints() {
	used, pools := listeners{}, overlap.Pools(c.set)
	var withoutEndpoint []int
	anyReachable, anyDiscovered := false, false
	for i, path := range c.clusterPaths {
		cluster := &c.set.Spec.Clusters[i]
		for j, p := range cluster.GatewayPaths(path) {
			g := &cluster.Gateways[j]
			anyDiscovered = anyDiscovered || g.HasDiscoveredEndpoint()
			c.checkDialOutOnly(cluster, g, p)
			c.checkSources(cluster, g, p)
			for k, text := range g.Endpoints {
				at := fieldpath.Index(p+".endpoints", k)
				if fabric.IsEndpointSource(text) {
					continue
				}
				if e, ok := c.endpoint(at, text, pools); ok {
					c.checkPortsDisjoint(used, e, listener{path: at, gateway: p}, c.bases(cluster, g, e))
				}
			}
		}
		if reachable := hasStaticEndpoint(cluster); !reachable && len(cluster.Gateways) > 0 {
			withoutEndpoint = append(withoutEndpoint, i)
		} else {
			anyReachable = anyReachable || reachable
		}
	}
	if !anyReachable && len(withoutEndpoint) > 1 {
		summary := "no gateway of any cluster has an endpoint, so no gateway can dial another"
		hint := "give at least one gateway the address at which the others reach it: endpoints: [203.0.113.11]"
		if anyDiscovered {
			summary = "no gateway of any cluster has a static endpoint, so no gateway can learn a discovered one"
			hint = "write the address of at least one gateway, because discovered endpoints are announced over established links: endpoints: [203.0.113.11]"
		}
		// The field may exist with an invalid value.
		cluster, path := withoutEndpoint[0], c.clusterPaths[withoutEndpoint[0]]
		first := c.set.Spec.Clusters[cluster].GatewayPaths(path)[0]
		c.Fail("no-endpoint", first+".endpoints", summary, hint)
		return
	}
	for n, i := range withoutEndpoint {
		c.warnUnreachablePair(withoutEndpoint[:n], i)
	}
}

// hasStaticEndpoint reports whether a cluster has a gateway with a static endpoint.
func hasStaticEndpoint(c *schema.Cluster) bool {
	return slices.ContainsFunc(c.Gateways, func(g schema.Gateway) bool { return g.HasStaticEndpoint() })
}

// warnUnreachablePair warns of a link between two clusters without static endpoints. They learn
// each other's discovered endpoints only through other clusters.
func (c *checker) warnUnreachablePair(withoutEndpoint []int, i int) {
	cluster := &c.set.Spec.Clusters[i]
	hasDiscovered := func(k *schema.Cluster) bool {
		return slices.ContainsFunc(k.Gateways, func(g schema.Gateway) bool { return g.HasDiscoveredEndpoint() })
	}
	var paths map[string][]string
	for _, j := range withoutEndpoint {
		other := &c.set.Spec.Clusters[j]
		if !c.links.Graph.Linked(cluster.Name, other.Name) {
			continue
		}
		summary := "no gateway has an endpoint, nor has any of another cluster: the two cannot connect"
		hint := "give at least one of the two clusters an endpoint, or link both to a cluster that has one" +
			" (connectivity: {mode: hub, hubs: [...]})"
		if hasDiscovered(cluster) || hasDiscovered(other) {
			if paths == nil {
				paths = c.links.Graph.Paths(cluster.Name, func(a, b string) bool {
					return hasStaticEndpoint(c.set.Cluster(a)) || hasStaticEndpoint(c.set.Cluster(b))
				})
			}
			if paths[other.Name] != nil {
				continue
			}
			summary = "no gateway of the two clusters has a static endpoint, and no other cluster" +
				" forwards their discovered endpoints: the two cannot connect"
			hint = "write the address of a gateway of one of the two, or link both to a cluster with a static endpoint that forwards transit" +
				" (connectivity: {mode: links, links: [...]})"
		}
		c.Warn("no-endpoint", c.clusterPaths[i]+".gateways", summary, hint, c.clusterPaths[j]+".gateways")
		return
	}
}

// checkDialOutOnly reports settings that do not work for a gateway without a static endpoint.
func (c *checker) checkDialOutOnly(cluster *schema.Cluster, g *schema.Gateway, path string) {
	if g.HasStaticEndpoint() {
		return
	}
	tunnels := c.links.Tunnels(cluster.Name)
	anyTunnel := func(is func(linkconfig.TunnelConfig) bool) bool { return slices.ContainsFunc(tunnels, is) }
	if anyTunnel(func(k linkconfig.TunnelConfig) bool { return k.Driver == fabric.DriverVXLAN }) {
		summary := "the gateway only dials out, which vxlan cannot"
		if g.HasDiscoveredEndpoint() {
			summary = "the gateway has no static endpoint, and vxlan cannot authenticate a discovered one"
		}
		c.Fail("no-endpoint", path, summary,
			"give it an endpoint, or use wireguard or ipsec for the links of "+cluster.Name)
	}
	if slices.ContainsFunc(g.Endpoints, func(text string) bool { return text != fabric.SourceObserved }) {
		return
	}
	if anyTunnel(func(k linkconfig.TunnelConfig) bool { return k.NoKeepalive }) {
		c.Warn("no-keepalive", path,
			"the gateway only dials out, and keepalive is 0s: it cannot be reached once it is silent",
			"set tunnel: {keepalive: 25s}")
	}
	if c.set.Spec.Tunnel.IPsec.Encapsulation == fabric.EncapsulationNative && anyTunnel(func(k linkconfig.TunnelConfig) bool { return k.Driver == fabric.DriverIPsec }) {
		c.Warn("no-encapsulation", path, "the gateway only dials out, and native ESP does not pass address translation",
			"set tunnel: {ipsec: {encapsulation: auto}}", "tunnel.ipsec.encapsulation")
	}
}

// checkSources checks the discovered endpoints of a gateway.
func (c *checker) checkSources(cluster *schema.Cluster, g *schema.Gateway, path string) {
	names, first := uniqueness{}, ""
	for k, text := range g.Endpoints {
		at := fieldpath.Index(path+".endpoints", k)
		switch {
		case fabric.IsEndpointSource(text):
			first = cmp.Or(first, at)
			c.unique(names, text, at, "endpoint source "+text+" is listed twice")
			c.checkServiceSource(cluster, g, text, at)
		case first != "":
			c.Fail("misplaced", at, text+" follows a discovered endpoint",
				"move it to the front: static endpoints are always preferred", first)
			return
		}
	}
}

// checkServiceSource checks a source that is a Service.
func (c *checker) checkServiceSource(cluster *schema.Cluster, g *schema.Gateway, text, path string) {
	if text != fabric.SourceNodePort {
		return
	}
	if slices.Contains(g.Endpoints, fabric.SourceLoadBalancer) {
		c.Fail("misplaced", path, "a gateway has one Service, which is of type LoadBalancer already",
			"remove one of both")
	}
	if n := g.Size(); n > 1 {
		c.Fail("misplaced", path, fmt.Sprintf("%d gateways cannot have the same ports of the nodes", n),
			"set count: 1, and write another gateway with a port of its own")
	}
	const last = fabric.LastNodePort - fabric.GatewayPorts + 1
	if port := c.set.GatewayPort(cluster, g); port < fabric.FirstNodePort || port > last {
		c.Fail("bad-port", path,
			fmt.Sprintf("the node ports equal the gateway's ports, which begin at %d, outside the range %d to %d", port, fabric.FirstNodePort, last),
			"give the gateway a port of that range, as in port: 31820")
	}
	for i := range cluster.Gateways {
		other := &cluster.Gateways[i]
		if other == g {
			return
		}
		gap := c.set.GatewayPort(cluster, other) - c.set.GatewayPort(cluster, g)
		if slices.Contains(other.Endpoints, fabric.SourceNodePort) && max(gap, -gap) < c.portsPerGateway() {
			c.Fail("bad-port", path,
				"the ports of nodes lead to gateway "+other.Name+" already, whose ports are not apart from these",
				fmt.Sprintf("give the gateway a port at least %d away from it", c.portsPerGateway()))
		}
	}
}

// endpoint checks one endpoint and reports whether it is valid.
func (c *checker) endpoint(path, text string, pools []overlap.Use) (fabric.Endpoint, bool) {
	fail := func(summary, hint string, others ...string) (fabric.Endpoint, bool) {
		c.Fail("bad-endpoint", path, summary, hint, others...)
		return fabric.Endpoint{}, false
	}
	e, err := fabric.ParseEndpoint(text)
	a := e.Addr
	switch {
	case err != nil && isSourceLike(text):
		return fail(fmt.Sprintf("%q is no source of endpoints", text), sourceHint(text))
	case err != nil:
		return fail(fmt.Sprintf("%q is neither an address nor dns:<name>", text), endpointHint(text))
	case e.Port > fabric.MaxPort:
		return fail(fmt.Sprintf("port %d is not in the range 1 to %d", e.Port, fabric.MaxPort), fmt.Sprintf("the gateway uses up to %d ports from this one", fabric.GatewayPorts))
	case e.Name != "" && !fabric.IsDomain(e.Name):
		return fail(fmt.Sprintf("%q is not a DNS name", e.Name), "write dns: and a name, such as dns:gw.g1.example.com")
	case e.Name != "":
		return e, true
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Zone() != "" || a.Is4In6():
		return fail(text+" is not a unicast address that other gateways can reach", "")
	}
	for _, p := range pools {
		if p.Prefix.Contains(a) {
			return fail(fmt.Sprintf("%s is inside %s %s", a, p.Path, p.Prefix), endpointInsideHint, p.Path)
		}
	}
	if g := overlap.Find(c.groups, a); g != nil {
		return fail(fmt.Sprintf("%s is inside %s %s", a, g.Members[0].Path, g.Prefix), endpointInsideHint, g.Members[0].Path)
	}
	return e, true
}

const endpointInsideHint = "an endpoint is an address of the network between the clusters; the route to this one would lead into a tunnel"

// endpointHint returns the most likely correction.
func endpointHint(text string) string {
	if p, err := netip.ParsePrefix(text); err == nil {
		return "write the address alone: " + p.Addr().String()
	}
	if _, err := fabric.ParseEndpoint("dns:" + text); err == nil && strings.ContainsFunc(text, unicode.IsLower) {
		if host, _, _ := strings.Cut(text, ":"); fabric.IsDomain(host) {
			return "write dns:" + text
		}
	}
	return "write an address, or dns: and a name, such as dns:gw.g1.example.com; :<port> may follow"
}

// isSourceLike reports whether a text resembles a source of endpoints.
func isSourceLike(text string) bool {
	word, _, _ := strings.Cut(strings.ToLower(text), ":")
	return word == "node" || word == "service" || word == fabric.SourceObserved
}

func sourceHint(text string) string {
	for _, source := range fabric.Sources() {
		if strings.HasPrefix(strings.ToLower(text), strings.ToLower(source)+":") {
			return "write " + source + ": a port is found as well"
		}
		if strings.EqualFold(text, source) {
			return "write " + source
		}
	}
	return "write one of " + strings.Join(fabric.Sources(), ", ")
}

// keys checks the clusters' recipients and the gateways' own public keys.
func (c *checker) keys() {
	recipients, public, ike := uniqueness{}, uniqueness{}, uniqueness{}
	for i, path := range c.clusterPaths {
		cluster := &c.set.Spec.Clusters[i]
		if c.recipient(path+".recipient", cluster.Recipient) {
			if earlier, dup := recipients.add(cluster.Recipient, path+".recipient"); dup {
				c.Warn("shared-recipient", path+".recipient",
					"another cluster has the same recipient: each can open the other's keys",
					"make one identity for each cluster with `hawser keys identity`", earlier)
			}
		}
		for j, p := range cluster.GatewayPaths(path) {
			g := &cluster.Gateways[j]
			if c.publicKey(p+".publicKey", g.PublicKey, "`wg pubkey` prints one: 44 characters, the last one is =") {
				c.unique(public, g.PublicKey, p+".publicKey", "another gateway has the same public key")
			}
			if c.publicKey(p+".ikePublicKey", g.IKEPublicKey, "`openssl pkey -pubout -outform DER | tail -c 32 | base64` prints the key of an Ed25519 key file") {
				c.unique(ike, g.IKEPublicKey, p+".ikePublicKey", "another gateway has the same public key")
			}
		}
	}
}

// recipient checks an age recipient. Findings do not contain it: it may be
// an identity, which is secret.
func (c *checker) recipient(path, text string) bool {
	if text == "" {
		return false
	}
	if strings.HasPrefix(strings.ToUpper(text), "AGE-SECRET-KEY-") {
		c.Fail("secret-in-file", path, "this is an identity, which is secret, and not its recipient",
			"make a new one, as this one must be considered known to others: `hawser keys identity`")
		return false
	}
	if _, err := syntax.ParseRecipient(text); err != nil {
		c.Fail("bad-recipient", path, "not an age recipient (age1... or age1pq1...)",
			"`hawser keys identity` makes an identity and prints its recipient")
		return false
	}
	return true
}

// publicKey checks a key of X25519 (RFC 7748) or Ed25519 (RFC 8032) in base64.
func (c *checker) publicKey(path, text, hint string) bool {
	if text == "" {
		return false
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	summary := ""
	switch {
	case err != nil:
		summary = "the public key is not base64"
	case len(raw) != 32:
		summary = fmt.Sprintf("the public key has %d bytes, not 32", len(raw))
	case !slices.ContainsFunc(raw, func(b byte) bool { return b != 0 }):
		summary = "the public key is all zero"
	default:
		return true
	}
	c.Fail("bad-public-key", path, summary, hint)
	return false
}
