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

// clusterPolicy contains the values for the template of a cluster's admission policies. Its methods
// return parts of CEL expressions.
type clusterPolicy struct {
	Mode            string   // clusters[].dns
	Zones           []string // that gateways forward in the cluster's DNS, in this order
	Servers         []netip.Addr
	GatewayServices []gatewayService
	Leases          bool // labels select the node of a gateway
}

// gatewayService is the Service of a gateway.
type gatewayService struct {
	Service string
	Node    string // empty if labels select the node
	Ports   string // as a list in CEL
}

// BeginMark returns the first line of a block that agents write into a cluster's DNS
// (nodeagent/cluster/apiobjects/corefile).
func (clusterPolicy) BeginMark() string {
	return "# hawser: begin (managed by Hawser; changes up to the end mark are reverted)"
}

// End returns the last line of a block that agents write into a cluster's DNS.
func (clusterPolicy) End() string { return "# hawser: end" }

// FileMark returns the first line of a file that only Hawser writes.
func (clusterPolicy) FileMark() string { return "# managed by Hawser; changes are reverted" }

// DNSConfigMaps returns the ConfigMaps of one CoreDNS. One of them can import the other.
func (clusterPolicy) DNSConfigMaps() []string { return []string{"coredns", "coredns-custom"} }

// Regular expressions (RE2) for the tokens of a Corefile as CoreDNS parses it. A token is a word, a
// quoted word with white space, a comment, or a separate brace. Blocks nest at most three deep. The
// text ends with a line end.
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

// File returns a regular expression for a Corefile of server blocks and imports.
func (clusterPolicy) File() string {
	return `^(?:` + corefileGap + `)?(?:` + corefileBlock + `|` + corefileImport + `)*$`
}

// Blocks returns a CEL expression for the server blocks of a text. Each block has its zones as
// zone:port, in lower case and without the last dot, and its bind directives.
func (clusterPolicy) Blocks(text string) string {
	return `(` + text + ` + '\n').findAll(r'` + corefileBlock + `').map(b, {'keys': b.find(r'^` + corefileKeys + `')` +
		`.findAll(r'#[^\n]*|import[ \t][^\n]*|` + corefileWord + `').filter(k, !k.matches('^(?:#|import[ \t])'))` +
		`.map(k, k.lowerAscii().replace('"', '').replace(',', '')).map(k, k.startsWith('dns://') ? k.substring(6) : k)` +
		`.map(k, (k.contains(':') ? k : k + ':53').replace('.:', ':')), ` +
		`'binds': b.findAll(r'[\n{][ \t]*bind[ \t][^\n#]*').map(l, l.substring(l.indexOf('bind')).trim())})`
}

// Free returns a CEL expression that is true if no server block has a key of the zones.
func (p clusterPolicy) Free(blocks string) string {
	var prefixes []string
	for _, zone := range p.Zones {
		if text := reverseZoneKeys(zone); text != "" {
			prefixes = append(prefixes, fmt.Sprintf("'%s': r'%s'", zone, text))
		}
	}
	return `variables.zones.all(z, ` + blocks + `.all(b, b['keys'].all(k, ` +
		`k != z + ':' + variables.lowerPort && !k.startsWith(z + ':{') && !(variables.lowerPort.startsWith('{') && k.startsWith(z + ':'))` +
		` && (!(z in {` + strings.Join(prefixes, ", ") + `}) || !k.matches({` + strings.Join(prefixes, ", ") + `}[z])))))`
}

// reverseZoneKeys returns a regular expression for the prefixes that CoreDNS expands to a reverse
// zone. It can match other prefixes of the same length. It is empty for other zones.
func reverseZoneKeys(zone string) string {
	if labels, ok := strings.CutSuffix(zone, ".in-addr.arpa"); ok {
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
		return fmt.Sprintf(`^(?:%s/%d|%s[0-9.]*/(?:%s))(?::|$)`, exact, 8*n, parent, alternatives(8*n-7, 8*n-1))
	}
	if labels, ok := strings.CutSuffix(zone, ".ip6.arpa"); ok {
		n := len(strings.Split(labels, "."))
		return fmt.Sprintf(`^[0-9a-f:]*:[0-9a-f:]*/(?:%s)(?::|$)`, alternatives(4*n-3, 4*n))
	}
	return ""
}

func alternatives(first, last int) string {
	var out []string
	for n := first; n <= last; n++ {
		out = append(out, fmt.Sprint(n))
	}
	return strings.Join(out, "|")
}

// List returns texts as a CEL list.
func (clusterPolicy) List(texts []string) string { return "['" + strings.Join(texts, "', '") + "']" }

// AnyZone returns a regular expression that matches each of the zones.
func (p clusterPolicy) AnyZone() string { return anyOf(p.Zones) }

// AnyServer returns a regular expression that matches each of the name servers.
func (p clusterPolicy) AnyServer() string { return anyOf(p.Servers) }

// Compact returns a CEL expression that removes the white space of a JSON object.
func (clusterPolicy) Compact(text string) string {
	return text + `.replace(' ', '').replace('\n', '').replace('\t', '').replace('\r', '')`
}

// Others returns a CEL expression for the members of a compact JSON object after Hawser's stub
// domains.
func (clusterPolicy) Others(object string) string {
	run := object + `.find(variables.stubEntries)`
	return `(` + object + ` in ['', '{}'] ? '' : ` + run + ` == '' ? ` + object + `.substring(1) : ` + object + `.substring(` + run + `.size()))`
}

// Same returns a CEL expression that is true if fields of an object do not change.
func (clusterPolicy) Same(fields ...string) string { return unchanged("", fields) }

// SameMetadata returns a CEL expression that is true if fields of the metadata do not change.
func (clusterPolicy) SameMetadata(fields ...string) string { return unchanged("metadata.", fields) }

func unchanged(prefix string, fields []string) string {
	out := make([]string, len(fields))
	for i, field := range fields {
		after, before := "object."+prefix+field, "oldObject."+prefix+field
		out[i] = fmt.Sprintf("has(%[1]s) == has(%[2]s) && (!has(%[1]s) || %[1]s == %[2]s)", after, before)
	}
	return strings.Join(out, " && ")
}

// addPolicy writes the admission policies that depend on the cluster.
func addPolicy(tree Tree, c *schema.Cluster, f *fabric.Fabric, ports *firewall.Calculator) error {
	compiled := f.Cluster(c.Name)
	values := clusterPolicy{
		Mode: c.DNS, Zones: f.ForwardedZones(), Servers: f.NameServers(compiled),
		Leases: slices.ContainsFunc(c.Gateways, func(g schema.Gateway) bool { return len(g.NodeSelector) > 0 }),
	}
	if len(values.Servers) == 0 {
		values.Mode = fabric.DNSNone // no name server to forward to
	}
	openings := ports.Links(c.Name, nil)
	for i := range compiled.Gateways {
		g := &compiled.Gateways[i]
		var list []string
		for _, port := range servicePorts(openings, g) {
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
	raw, err := executeTemplate("policy.yaml", policyTemplate, values)
	if err != nil {
		return err
	}
	tree[path.Join(ClusterDir(c.Name), "policy.yaml")] = raw
	return nil
}

// servicePorts returns the UDP ports of a gateway's Service. It returns none for a gateway without
// a Service or without links.
func servicePorts(openings []firewall.Rule, g *fabric.Gateway) []int {
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
