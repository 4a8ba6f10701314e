package schema

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
)

// dnsPrefix begins an endpoint that is looked up by name.
const dnsPrefix = "dns:"

// endpoints checks where gateways are reached.
func (c *checker) endpoints() {
	taken, pools := map[string][]listener{}, c.set.pools()
	silent := ""
	for i, path := range c.clusterPaths {
		cluster := &c.set.Spec.Clusters[i]
		reachable := len(cluster.Gateways) == 0
		for j, p := range cluster.gatewayPaths(path) {
			g := &cluster.Gateways[j]
			reachable = reachable || len(g.Endpoints) > 0
			c.dialOut(cluster, g, p)
			for k, text := range g.Endpoints {
				at := nth(p+".endpoints", k)
				if c.endpoint(at, text, pools) {
					c.apart(taken, normalEndpoint(text), listener{at, c.set.GatewayPort(cluster, g)})
				}
			}
		}
		if reachable {
			continue
		}
		if silent != "" {
			c.warn(diag.Diagnostic{
				Code: "no-endpoint", Path: path + ".gateways",
				Summary: "no gateway has an endpoint, nor has any of another cluster: the two cannot connect",
				Hint:    "give at least one of the two clusters an endpoint", Related: related(silent + ".gateways"),
			})
		}
		silent = path
	}
}

// gatewayPorts is how many UDP ports from its first on a gateway may listen on:
// one for each lane and each of two key epochs.
const gatewayPorts = 2 * fabric.MaxLanes

// ownPorts are those of the agent on every node, UDP or TCP.
const firstOwnPort, lastOwnPort = 4803, 4806

func (c *checker) portRange(first int, path string) {
	if first <= lastOwnPort && first+gatewayPorts > firstOwnPort {
		c.fail(diag.Diagnostic{Code: "bad-port", Path: path,
			Summary: fmt.Sprintf("its ports %d to %d hold %d to %d, on which the agent listens",
				first, first+gatewayPorts-1, firstOwnPort, lastOwnPort),
			Hint: "set port to another one, such as 51820"})
	}
}

// listener is a gateway at one endpoint.
type listener struct {
	path string
	port int
}

// apart checks that gateways behind one address have ports of their own.
func (c *checker) apart(taken map[string][]listener, endpoint string, l listener) {
	for _, other := range taken[endpoint] {
		switch gap := max(l.port-other.port, other.port-l.port); {
		case gap == 0:
			c.fail(diag.Diagnostic{Code: "duplicate", Path: l.path, Related: related(other.path),
				Summary: fmt.Sprintf("%s with port %d is the endpoint of another gateway", endpoint, l.port)})
		case gap < gatewayPorts:
			c.fail(diag.Diagnostic{Code: "duplicate", Path: l.path, Related: related(other.path),
				Summary: fmt.Sprintf("%s is the endpoint of another gateway with port %d, only %d from %d", endpoint, other.port, gap, l.port),
				Hint:    fmt.Sprintf("give them ports that are %d apart, as each gateway may use so many", gatewayPorts)})
		default:
			continue
		}
		return
	}
	taken[endpoint] = append(taken[endpoint], l)
}

// dialOut warns of a gateway that nobody can call and that lets its way in close.
func (c *checker) dialOut(cluster *Cluster, g *Gateway, path string) {
	keepalive := c.set.TunnelOf(cluster).Keepalive
	if len(g.Endpoints) == 0 && keepalive != nil && time.Duration(*keepalive) == 0 {
		c.warn(diag.Diagnostic{
			Code: "no-keepalive", Path: path,
			Summary: "the gateway only dials out, and keepalive is 0s: it cannot be reached once it is silent",
			Hint:    "set tunnel: {keepalive: 25s}",
		})
	}
}

// normalEndpoint gives one text for all ways to write an endpoint.
func normalEndpoint(text string) string {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.String()
	}
	return strings.ToLower(text)
}

// endpoint checks one endpoint by itself and reports whether it is good.
func (c *checker) endpoint(path, text string, pools []use) bool {
	fail := func(summary, hint string, others ...string) bool {
		c.fail(diag.Diagnostic{Code: "bad-endpoint", Path: path, Summary: summary, Hint: hint, Related: related(others...)})
		return false
	}
	if name, ok := strings.CutPrefix(text, dnsPrefix); ok {
		if !isDomain(strings.ToLower(name)) {
			return fail(fmt.Sprintf("%q is not a DNS name", name), "write dns: and a name, such as dns:gw.g1.example.com, without a port")
		}
		return true
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return fail(fmt.Sprintf("%q is neither an address nor dns:<name>", text), endpointHint(text))
	}
	if a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Zone() != "" || a.Is4In6() {
		return fail(text+" is not a unicast address that other gateways can reach", "")
	}
	for _, p := range pools {
		if p.prefix.Contains(a) {
			return fail(fmt.Sprintf("%s is inside %s %s", a, p.path, p.prefix), insideHint, p.path)
		}
	}
	if g := find(c.groups, a); g != nil {
		return fail(fmt.Sprintf("%s is inside %s %s", a, g.members[0].path, g.prefix), insideHint, g.members[0].path)
	}
	return true
}

const insideHint = "an endpoint is an address of the network between the clusters; the route to this one would lead into a tunnel"

// endpointHint says what is most likely meant.
func endpointHint(text string) string {
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return fmt.Sprintf("write %s here, and port: %d beside endpoints", ap.Addr(), ap.Port())
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return "write the address alone: " + p.Addr().String()
	}
	host, port, found := strings.Cut(text, ":")
	if n, err := strconv.Atoi(port); found && err == nil && isDomain(host) {
		return fmt.Sprintf("write dns:%s here, and port: %d beside endpoints", host, n)
	}
	if isDomain(text) && strings.ContainsFunc(text, func(r rune) bool { return r >= 'a' && r <= 'z' }) {
		return "write dns:" + text
	}
	return "write an address, or dns: and a name, such as dns:gw.g1.example.com"
}

// keys checks the clusters' recipients and the gateways' own public keys.
func (c *checker) keys() {
	recipients, public := uniqueness{}, uniqueness{}
	for i, path := range c.clusterPaths {
		cluster := &c.set.Spec.Clusters[i]
		if c.recipient(path+".recipient", cluster.Recipient) {
			if earlier, dup := recipients.add(cluster.Recipient, path+".recipient"); dup {
				c.warn(diag.Diagnostic{
					Code: "shared-recipient", Path: path + ".recipient",
					Summary: "another cluster has the same recipient: each can open the other's keys",
					Hint:    "make one identity for each cluster with `hawser keys identity`", Related: related(earlier),
				})
			}
		}
		for j, p := range cluster.gatewayPaths(path) {
			if key := cluster.Gateways[j].PublicKey; c.publicKey(p+".publicKey", key) {
				c.unique(public, key, p+".publicKey", "another gateway has the same public key")
			}
		}
	}
}

// recipient checks an age recipient. What is wrong with it is not printed, as
// it may be an identity, which is secret.
func (c *checker) recipient(path, text string) bool {
	if text == "" {
		return false
	}
	d := diag.Diagnostic{
		Code: "bad-recipient", Path: path, Summary: "not an age recipient for X25519",
		Hint: "`hawser keys identity` makes an identity and prints its recipient, which begins with age1",
	}
	if strings.HasPrefix(strings.ToUpper(text), "AGE-SECRET-KEY-") {
		d.Code, d.Summary = "secret-in-file", "this is an identity, which is secret, and not its recipient"
		d.Hint = "make a new one, as this one must be considered known to others: `hawser keys identity`"
	} else if _, err := age.ParseX25519Recipient(text); err == nil {
		return true
	}
	c.fail(d)
	return false
}

// publicKey checks a key of X25519 (RFC 7748) in base64, as wg pubkey prints it.
func (c *checker) publicKey(path, text string) bool {
	if text == "" {
		return false
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	d := diag.Diagnostic{Code: "bad-public-key", Path: path, Hint: "`wg pubkey` prints one: 44 characters, the last one is ="}
	switch {
	case err != nil:
		d.Summary = "the public key is not base64"
	case len(raw) != 32:
		d.Summary = fmt.Sprintf("the public key has %d bytes, not 32", len(raw))
	case !slices.ContainsFunc(raw, func(b byte) bool { return b != 0 }):
		d.Summary = "the public key is all zero"
	default:
		return true
	}
	c.fail(d)
	return false
}
