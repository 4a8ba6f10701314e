package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
)

// Kinds of entries, in the order of the plan.
const (
	kindClusterset    = "clusterset"
	kindAgents        = "agents"
	kindCluster       = "cluster"
	kindPair          = "pair"
	kindGateway       = "gateway"
	kindLink          = "link"
	kindEgress        = "egress rule"
	kindKeys          = "keys"
	kindExport        = "export"
	kindClusterExport = "export in cluster"
	kindPage          = "page"    // of a cluster
	kindSetting       = "setting" // of the topology, if no other entry describes the effect
	kindFile          = "file"
)

func kindOrder(kind string) int {
	order := []string{kindClusterset, kindAgents, kindPair, kindCluster, kindGateway, kindLink, kindEgress, kindKeys, kindExport, kindClusterExport,
		kindPage, kindSetting, kindFile}
	return slices.Index(order, kind)
}

// allClusters is the value for an export without an allow list.
const allClusters = "all clusters"

// item is one object of a clusterset for package diff.
type item struct {
	kind       string
	name       string
	cluster    string
	path       string
	fields     []diff.Field
	remark     string // see Entry.Remark
	disruptive string // see Entry.Disruptive
	count      int    // number of grouped objects; 0 = 1
}

// Key implements diff.Spec.
func (i item) Key() string { return i.kind + " " + i.name }

// Fields implements diff.Spec.
func (i item) Fields() []diff.Field { return i.fields }

// flatten returns all objects of a fabric as items.
func flatten(f *fabric.Fabric) []item {
	out := make([]item, 0, 1+3*len(f.Clusters)+3*len(f.Exports))
	out = append(out, clustersetItem(f))
	for i := range f.Clusters {
		c := &f.Clusters[i]
		out = append(out, clusterItem(c))
		for j := range c.Gateways {
			out = append(out, gatewayItem(c, &c.Gateways[j]))
		}
		for j := range c.EgressRules {
			out = append(out, egressItem(c, &c.EgressRules[j]))
		}
	}
	for i := range f.Exports {
		e := &f.Exports[i]
		out = append(out, exportItem(e))
		for j := range e.Clusters {
			out = append(out, clusterExportItem(e, &e.Clusters[j]))
		}
	}
	return out
}

func field(name, value string) diff.Field { return diff.Field{Name: name, Value: value} }

// immutableField returns a field that cannot change in place.
func immutableField(name, value string) diff.Field {
	return diff.Field{Name: name, Value: value, Immutable: true}
}

// clustersetItem returns the clusterset's own fields. A field's name is its topology path.
func clustersetItem(f *fabric.Fabric) item {
	return item{kind: kindClusterset, name: f.Name, path: "metadata.name", fields: []diff.Field{
		field("domain", f.Domain),
		field("extraDomains", strings.Join(f.ExtraDomains, ", ")),
		field("globalnet.cidr", join(f.GlobalPools)),
		field("services.cidr", join(f.ServicePools)),
		field("tunnel.cidr", join(f.TunnelPools)),
		field("tunnel.driver", f.Tunnel.Driver),
		field("tunnel.mtu", mtu(f.Tunnel.MTU)),
		field("tunnel.keepalive", time.Duration(f.Tunnel.Keepalive).String()),
		field("tunnel.ipsec", ipsec(f)),
		field("connectivity", shape(f)),
		field("health.interval", time.Duration(f.Health.Interval).String()),
		field("health.misses", strconv.Itoa(f.Health.Misses)),
		field("dns.clusterNames", strconv.FormatBool(f.DNS.ClusterNames)),
		field("dns.ttl", time.Duration(f.DNS.TTL).String()),
		field("dns.address", address(f.DNS.Address)),
		field("dns.ipv6Address", address(f.DNS.IPv6Address)),
		field("limits.connections", intOr(f.Limits.Connections, "any number")),
		field("keys.epochs", join(f.Epochs)),
		field("dynamicExports.namespaces", namespaces(f.DynamicExports)),
		field("dynamicExports[].clusters", restrictions(f.DynamicExports)),
		field("decommission", boolText(f.Decommission)),
	}}
}

func clusterItem(c *fabric.Cluster) item {
	mode := "flat"
	if c.Globalnet {
		mode = "global"
	}
	for _, family := range c.FlatFamilies {
		mode += fmt.Sprintf(", IPv%d flat", family)
	}
	mappings := make([]string, len(c.Mappings))
	for i, m := range c.Mappings {
		mappings[i] = m.Pods.String() + " as " + m.Global.String()
	}
	var blocks, extensions []netip.Prefix // the first of each family is the block
	for _, p := range c.GlobalCIDRs {
		if slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return b.Addr().Is4() == p.Addr().Is4() }) {
			extensions = append(extensions, p)
		} else {
			blocks = append(blocks, p)
		}
	}
	return item{kind: kindCluster, name: c.Name, cluster: c.Name, path: "clusters[" + c.Name + "]", fields: []diff.Field{
		field("podCIDRs", join(c.PodCIDRs)),
		field("serviceCIDRs", join(c.ServiceCIDRs)),
		field("globalnet", mode),
		immutableField("globalCIDRs", join(blocks)),
		field("extension blocks", join(extensions)),
		field("egress mode", c.EgressMode),
		field("egressIPs", ranges(c.EgressIPs)),
		field("mappings", strings.Join(mappings, ", ")),
		field("dynamic exports", join(c.Dynamic)),
		field("dns", dnsOf(c)),
	}}
}

// dnsOf returns clusters[].dns of the topology.
func dnsOf(c *fabric.Cluster) string {
	if c.PreferCustomDNS {
		return fabric.DNSAuto
	}
	return cmp.Or(c.ClusterDNS, fabric.DNSNone)
}

func gatewayItem(c *fabric.Cluster, g *fabric.Gateway) item {
	keys, ike := make([]string, len(g.Keys)), []string{}
	for i, k := range g.Keys {
		epoch := strconv.Itoa(k.Epoch) + ":"
		keys[i] = epoch + k.Public
		if k.Ed25519 != "" {
			ike = append(ike, epoch+k.Ed25519)
		}
	}
	return item{kind: kindGateway, name: c.Name + "/" + g.Name, cluster: c.Name,
		path: fmt.Sprintf("clusters[%s].gateways[%s]", c.Name, g.Name), fields: []diff.Field{
			field("node", g.Node),
			field("nodeSelector", joinPairs(g.NodeSelector)),
			field("endpoints", strings.Join(g.Endpoints, ", ")),
			field("port", strconv.Itoa(g.Port)),
			field("ordinal", strconv.Itoa(g.Ordinal)),
			field("addresses", ranges(g.Addresses)),
			field("public keys", strings.Join(keys, ", ")),
			field("IKE keys", strings.Join(ike, ", ")),
		}}
}

func egressItem(c *fabric.Cluster, r *fabric.EgressRule) item {
	return item{kind: kindEgress, name: c.Name + "/" + r.Name, cluster: c.Name,
		path: fmt.Sprintf("clusters[%s].egress[%s]", c.Name, r.Name), fields: []diff.Field{
			field("namespace", r.Namespace),
			field("matchLabels", joinPairs(r.MatchLabels)),
			field("ips", ranges(r.IPs)),
		}}
}

func exportItem(e *fabric.Export) item {
	ports := make([]string, len(e.Ports))
	for i, p := range e.Ports {
		ports[i] = strings.TrimPrefix(p.Name+" ", " ") + strconv.Itoa(p.Port) + "/" + p.Protocol
		if p.AppProtocol != "" {
			ports[i] += " (" + p.AppProtocol + ")"
		}
	}
	allow := allClusters
	if e.Allow != nil {
		allow = strings.Join(e.Allow, ", ")
	}
	balance := e.Balance.Policy
	if len(e.Balance.Weights) > 0 {
		balance += " " + joinPairs(e.Balance.Weights)
	}
	if len(e.Balance.Order) > 0 {
		balance += " " + strings.Join(e.Balance.Order, ", ")
	}
	return item{kind: kindExport, name: e.ID(), path: "exports[" + e.ID() + "]", fields: []diff.Field{
		immutableField("type", e.Type),
		immutableField("clusterset IPs", ranges(e.VIPs)),
		field("ports", strings.Join(ports, ", ")),
		field("sessionAffinity", e.Affinity),
		field("allow", allow),
		field("balance", balance),
	}}
}

func clusterExportItem(e *fabric.Export, c *fabric.ExportCluster) item {
	return item{kind: kindClusterExport, name: e.ID() + " in " + c.Name, cluster: c.Name,
		path: fmt.Sprintf("exports[%s].clusters[%s]", e.ID(), c.Name), fields: []diff.Field{
			immutableField("global IPs", ranges(c.IPs)),
			field("hosts", hosts(c.Hosts)),
		}}
}

// keysItem returns a cluster's sealed keys. The keyed digest represents their content.
func keysItem(tree render.Tree, cluster string) (item, bool) {
	sealed := render.SealedOf(tree, cluster)
	if sealed.Ciphertext == "" {
		return item{}, false
	}
	return item{kind: kindKeys, name: cluster, cluster: cluster, path: "clusters[" + cluster + "].recipient",
		fields: []diff.Field{field("digest", shortDigest(sealed.Digest))}}, true
}

func shortDigest(digest string) string {
	if digest == render.KnownAfterPublish {
		return digest
	}
	return digest[:min(len(digest), 16)]
}
