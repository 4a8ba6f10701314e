package render

import (
	_ "embed"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/firewall"
)

//go:embed cluster/policy.yaml
var policyTemplate string

// clusterPolicy fills in the template of a cluster's admission policies. Its methods return
// parts of CEL expressions.
type clusterPolicy struct {
	Mode            string   // clusters[].dns
	Zones           []string // which gateways may forward in the cluster's DNS, in this order
	Servers         []netip.Addr
	GatewayServices []gatewayService
	Leases          bool // some gateway's node is picked by labels
}

// gatewayService is the Service of a gateway.
type gatewayService struct {
	Service string
	Node    string // empty if labels select the node
	Ports   string // as a list in CEL
}

// Lines of the text that agents write into a cluster's DNS (nodeagent/cluster/apiobjects/corefile).
func (clusterPolicy) BeginMark() string {
	return "# hawser: begin (managed by Hawser; changes up to the end mark are reverted)"
}

// End is the last line of a block.
func (clusterPolicy) End() string { return "# hawser: end" }

// FileMark is the first line of a file that belongs to Hawser completely.
func (clusterPolicy) FileMark() string { return "# managed by Hawser; changes are reverted" }

// DNSConfigMaps are the ConfigMaps of one CoreDNS; one of them may import the other.
func (clusterPolicy) DNSConfigMaps() []string { return []string{"coredns", "coredns-custom"} }

// Regular expressions (RE2) of a Corefile, as CoreDNS splits it: words between white space, quotes
// around words with white space, comments, and braces that stand alone. Blocks nest at most three
// deep. The text ends with a line end.
const (
	corefileGap    = `(?:\s|#[^\n]*\n)+`
	corefileWord   = `(?:"(?:\\.|[^"\\])*"|[^\s"#{}][^\s#]*|[{}][^\s#]+)`
	corefileWords  = `(?:` + corefileWord + corefileGap + `)`
	corefileOption = `(?:` + corefileWords + `|\{` + corefileGap + corefileWords + `*\}` + corefileGap + `)*`
	corefileBody   = `(?:` + corefileWords + `|\{` + corefileGap + corefileOption + `\}` + corefileGap + `)*`
	corefileKeys   = `(?:` + corefileGap + `)?` + corefileWords + `+\{`
	corefileBlock  = corefileKeys + corefileGap + corefileBody + `\}` + corefileGap
	corefileImport = `(?:` + corefileGap + `)?import[ \t][^\n]*\n(?:` + corefileGap + `)?`
)

// File matches a whole Corefile that consists of server blocks and imports.
func (clusterPolicy) File() string {
	return `^(?:` + corefileGap + `)?(?:` + corefileBlock + `|` + corefileImport + `)*$`
}

// Blocks lists the server blocks of a text: the zones of each as zone:port, in lower case
// and without the last dot, and its bind directives.
func (clusterPolicy) Blocks(text string) string {
	return `(` + text + ` + '\n').findAll(r'` + corefileBlock + `').map(b, {'keys': b.find(r'^` + corefileKeys + `')` +
		`.findAll(r'#[^\n]*|import[ \t][^\n]*|` + corefileWord + `').filter(k, !k.matches('^(?:#|import[ \t])'))` +
		`.map(k, k.lowerAscii().replace('"', '').replace(',', '')).map(k, k.startsWith('dns://') ? k.substring(6) : k)` +
		`.map(k, (k.contains(':') ? k : k + ':53').replace('.:', ':')), ` +
		`'binds': b.findAll(r'[\n{][ \t]*bind[ \t][^\n#]*').map(l, l.substring(l.indexOf('bind')).trim())})`
}

// Free compares the zones with the keys of server blocks.
func (p clusterPolicy) Free(blocks string) string {
	var prefixes []string
	for _, zone := range p.Zones {
		if text := prefixesOf(zone); text != "" {
			prefixes = append(prefixes, fmt.Sprintf("'%s': r'%s'", zone, text))
		}
	}
	return `variables.zones.all(z, ` + blocks + `.all(b, b['keys'].all(k, ` +
		`k != z + ':' + variables.lowerPort && !k.startsWith(z + ':{') && !(variables.lowerPort.startsWith('{') && k.startsWith(z + ':'))` +
		` && (!(z in {` + strings.Join(prefixes, ", ") + `}) || !k.matches({` + strings.Join(prefixes, ", ") + `}[z])))))`
}

// prefixesOf returns a regular expression of the keys that CoreDNS expands to a reverse zone,
// which are prefixes. It may match more prefixes of the same length. It is empty for other zones.
func prefixesOf(zone string) string {
	if labels, is := strings.CutSuffix(zone, ".in-addr.arpa"); is {
		octets := strings.Split(labels, ".")
		slices.Reverse(octets)
		n := len(octets)
		exact := strings.Join(octets, `\.`)
		if n < 4 {
			exact += `\.[0-9.]*`
		}
		parent := ``
		if n > 1 {
			parent = strings.Join(octets[:n-1], `\.`) + `\.`
		}
		return fmt.Sprintf(`^(?:%s/%d|%s[0-9.]*/(?:%s))(?::|$)`, exact, 8*n, parent, numbers(8*n-7, 8*n-1))
	}
	if labels, is := strings.CutSuffix(zone, ".ip6.arpa"); is {
		n := len(strings.Split(labels, "."))
		return fmt.Sprintf(`^[0-9a-f:]*:[0-9a-f:]*/(?:%s)(?::|$)`, numbers(4*n-3, 4*n))
	}
	return ""
}

func numbers(first, last int) string {
	var out []string
	for n := first; n <= last; n++ {
		out = append(out, fmt.Sprint(n))
	}
	return strings.Join(out, "|")
}

// List writes texts as a list.
func (clusterPolicy) List(texts []string) string { return "['" + strings.Join(texts, "', '") + "']" }

// AnyZone matches one of the zones.
func (p clusterPolicy) AnyZone() string { return anyOf(p.Zones) }

// AnyServer matches the name server.
func (p clusterPolicy) AnyServer() string { return anyOf(p.Servers) }

// Compact removes the white space of a JSON object.
func (clusterPolicy) Compact(text string) string {
	return text + `.replace(' ', '').replace('\n', '').replace('\t', '').replace('\r', '')`
}

// Others returns the members of a compact JSON object behind the stub domains of Hawser.
func (clusterPolicy) Others(object string) string {
	run := object + `.find(variables.stubEntries)`
	return `(` + object + ` in ['', '{}'] ? '' : ` + run + ` == '' ? ` + object + `.substring(1) : ` + object + `.substring(` + run + `.size()))`
}

// Same compares fields of an object with those before a change.
func (clusterPolicy) Same(fields ...string) string { return same("", fields) }

// SameMetadata compares fields of the metadata.
func (clusterPolicy) SameMetadata(fields ...string) string { return same("metadata.", fields) }

func same(of string, fields []string) string {
	out := make([]string, len(fields))
	for i, field := range fields {
		now, was := "object."+of+field, "oldObject."+of+field
		out[i] = fmt.Sprintf("has(%[1]s) == has(%[2]s) && (!has(%[1]s) || %[1]s == %[2]s)", now, was)
	}
	return strings.Join(out, " && ")
}

// addPolicy writes the admission policies that depend on the cluster.
func addPolicy(tree Tree, c *schema.Cluster, f *fabric.Fabric, ports *firewall.Calculator) error {
	own := f.Cluster(c.Name)
	values := clusterPolicy{
		Mode: c.DNS, Zones: f.ForwardedZones(), Servers: f.NameServers(own),
		Leases: slices.ContainsFunc(c.Gateways, func(g schema.Gateway) bool { return len(g.NodeSelector) > 0 }),
	}
	if len(values.Servers) == 0 {
		values.Mode = fabric.DNSNone // there is nothing to forward to
	}
	openings := ports.Links(c.Name, nil)
	for i := range own.Gateways {
		g := &own.Gateways[i]
		var list []string
		for _, port := range frontPorts(openings, g) {
			list = append(list, fmt.Sprint(port))
		}
		if len(list) == 0 {
			continue
		}
		node := g.Node
		if g.HasNodeSelector() {
			node = ""
		}
		values.GatewayServices = append(values.GatewayServices, gatewayService{Service: fabric.ServiceOf(g.Name), Node: node, Ports: "[" + strings.Join(list, ", ") + "]"})
	}
	raw, err := filled("policy.yaml", policyTemplate, values)
	if err != nil {
		return err
	}
	tree[path.Join(ClusterDir(c.Name), "policy.yaml")] = raw
	return nil
}

// frontPorts lists the UDP ports of a gateway's Service: none for a gateway without a Service, or
// without links.
func frontPorts(openings []firewall.Rule, g *fabric.Gateway) []int {
	if !g.HasService() {
		return nil
	}
	var out []int
	for _, o := range openings {
		for port := o.First; o.Gateway == g.Name && o.Protocol == firewall.UDP && port <= o.Last; port++ {
			out = append(out, port)
		}
	}
	return out
}
