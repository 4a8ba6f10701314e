package offline

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/stablehash"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/firewall"
)

// nftText returns one chain per gateway, and one chain for the nodes of each cluster.
func nftText(name string, list []firewall.Rule) string {
	var out strings.Builder
	writeLine := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) }
	writeLine("# What firewalls must let in for the clusterset %s, by hawser firewall.", name)
	writeLine("# Jump to a chain from one of yours that has a hook, before it drops:")
	writeLine("#   nft add rule inet filter input jump %s", chainName(&list[0]))
	writeLine("table inet filter {")
	for i := range list {
		o := &list[i]
		if i == 0 || chainName(o) != chainName(&list[i-1]) {
			if i > 0 {
				writeLine("\t}\n")
			}
			writeLine("\tchain %s {", chainName(o))
		}
		if o.Purpose == firewall.PurposeNodes { // the topology does not have the addresses of these nodes
			writeLine("\t\t# ip saddr { the nodes of %s } udp dport %s accept", o.Cluster, o.Ports())
			continue
		}
		for _, rule := range nftRules(o) {
			writeLine("\t\t%s accept comment %q", rule, comment(o))
		}
	}
	writeLine("\t}\n}")
	return out.String()
}

func chainName(o *firewall.Rule) string {
	if o.Purpose == firewall.PurposeNodes {
		return "hawser-" + o.Cluster + "-nodes"
	}
	return "hawser-" + o.Cluster + "-" + o.Gateway
}

// nftRules returns a rule per address family, or one rule if any source is allowed.
func nftRules(o *firewall.Rule) []string {
	match := "meta l4proto esp"
	if o.Protocol == firewall.UDP {
		match = "udp dport " + o.Ports()
	}
	if len(o.Sources) == 0 {
		return []string{match}
	}
	var out []string
	for _, s := range families(o) {
		family := "ip"
		if s.six {
			family = "ip6"
		}
		out = append(out, fmt.Sprintf("%s saddr { %s } %s", family, strings.Join(prefixTexts(s.list, true), ", "),
			match))
	}
	return out
}

// prefixTexts formats prefixes. With short, single addresses have no prefix length.
func prefixTexts(list []netip.Prefix, short bool) []string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.String()
		if short && p.IsSingleIP() {
			out[i] = p.Addr().String()
		}
	}
	return out
}

// maxComment is the maximum length of a rule's comment in bytes. nftables allows 128, the clouds
// more.
const maxComment = 120

// comment returns the description of a rule. It only has characters that every cloud accepts.
func comment(o *firewall.Rule) string {
	text := fmt.Sprintf("hawser %s %s from %s", o.Driver, o.Purpose, strings.Join(o.From, " "))
	if o.Purpose == firewall.PurposeNodes {
		text = "hawser nodes of " + o.Cluster
	}
	if len(text) > maxComment {
		text = fmt.Sprintf("hawser %s %s from %d clusters", o.Driver, o.Purpose, len(o.From))
	}
	return text
}

// block is a Terraform block with its arguments in order.
type block struct {
	head string
	args [][2]string
	body []block
}

func (b block) write(out *strings.Builder, indent string) {
	_, _ = fmt.Fprintf(out, "%s%s {\n", indent, b.head)
	width := 0
	for _, a := range b.args {
		width = max(width, len(a[0]))
	}
	for _, a := range b.args {
		_, _ = fmt.Fprintf(out, "%s  %-*s = %s\n", indent, width, a[0], a[1])
	}
	for i, inner := range b.body {
		if i > 0 || len(b.args) > 0 {
			out.WriteString("\n")
		}
		inner.write(out, indent+"  ")
	}
	_, _ = fmt.Fprintf(out, "%s}\n", indent)
}

// quotedList formats a list in HCL. Names and comments of Hawser do not contain the template syntax
// of HCL.
func quotedList(list []string) string {
	texts := make([]string, len(list))
	for i, t := range list {
		texts[i] = strconv.Quote(t)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func variable(name, kind, description string) block {
	return block{head: "variable " + strconv.Quote(name), args: [][2]string{{"type", kind}, {"description", strconv.Quote(description)}}}
}

// terraform returns rules for a provider. Rules between the nodes of a cluster apply to their common
// security group or tag.
func terraform(format, name string, list []firewall.Rule) string {
	var blocks []block
	switch format {
	case firewallAWS:
		blocks = awsBlocks(list)
	case firewallGoogle:
		blocks = googleBlocks(list)
	default:
		blocks = azureBlocks(list)
	}
	var out strings.Builder
	_, _ = fmt.Fprintf(&out, "# What firewalls must let in for the clusterset %s, by hawser firewall -o %s.\n",
		name, format)
	for _, b := range blocks {
		out.WriteString("\n")
		b.write(&out, "")
	}
	return out.String()
}

// owner returns the gateway of a rule, or the cluster for rules between its nodes.
func owner(o *firewall.Rule) string {
	if o.Purpose == firewall.PurposeNodes {
		return o.Cluster
	}
	return o.Cluster + "/" + o.Gateway
}

// ruleName returns a name that is unique among all rules. Its length is within Google's limit.
func ruleName(o *firewall.Rule, suffixes ...string) string {
	parts := []string{"hawser", o.Cluster}
	if o.Gateway != "" {
		parts = append(parts, o.Gateway)
	}
	parts = append(parts, o.Purpose, o.Protocol)
	if o.First != 0 {
		parts = append(parts, o.Ports())
	}
	name := strings.Join(append(parts, suffixes...), "-")
	if len(name) <= fabric.MaxLabel {
		return name
	}
	hash := fmt.Sprintf("-%016x", stablehash.Sum64(name))
	return strings.TrimRight(name[:fabric.MaxLabel-len(hash)], "-") + hash
}

func awsBlocks(list []firewall.Rule) []block {
	out := []block{variable("hawser_security_groups", "map(string)",
		"Security group of each gateway's node, by cluster/gateway, and of all nodes of a cluster, by cluster.")}
	for i := range list {
		o := &list[i]
		group := "var.hawser_security_groups[" + strconv.Quote(owner(o)) + "]"
		rule := func(name, key, value string) {
			b := block{head: "resource \"aws_vpc_security_group_ingress_rule\" " + strconv.Quote(name), args: [][2]string{
				{"security_group_id", group}, {"description", strconv.Quote(comment(o))},
			}}
			if o.Protocol == firewall.UDP {
				b.args = append(b.args, [2]string{"ip_protocol", strconv.Quote("udp")}, [2]string{"from_port",
					strconv.Itoa(o.First)}, [2]string{"to_port", strconv.Itoa(o.Last)})
			} else {
				b.args = append(b.args, [2]string{"ip_protocol", strconv.Quote("50")})
			}
			b.args = append(b.args, [2]string{key, value})
			out = append(out, b)
		}
		if o.Purpose == firewall.PurposeNodes {
			rule(ruleName(o), "referenced_security_group_id", group)
			continue
		}
		for _, s := range families(o) {
			for n, p := range prefixTexts(s.list, false) {
				rule(ruleName(o, s.short(), strconv.Itoa(n)), "cidr_ip"+s.short(), strconv.Quote(p))
			}
		}
	}
	return out
}

func googleBlocks(list []firewall.Rule) []block {
	out := []block{
		variable("hawser_network", "string", "Network of the gateways."),
		variable("hawser_tags", "map(list(string))",
			"Network tags of each gateway's node, by cluster/gateway, and of all nodes of a cluster, by cluster."),
	}
	for i := range list {
		o := &list[i]
		tags := "var.hawser_tags[" + strconv.Quote(owner(o)) + "]"
		allow := block{head: "allow", args: [][2]string{{"protocol", strconv.Quote(o.Protocol)}}}
		if o.Protocol == firewall.UDP {
			allow.args = append(allow.args, [2]string{"ports", quotedList([]string{o.Ports()})})
		}
		rule := func(name, key, value string) {
			out = append(out, block{
				head: "resource \"google_compute_firewall\" " + strconv.Quote(name),
				args: [][2]string{
					{"name", strconv.Quote(strings.ToLower(name))}, {"description", strconv.Quote(comment(o))}, {"network",
						"var.hawser_network"},
					{"direction", strconv.Quote("INGRESS")}, {"target_tags", tags}, {key, value},
				},
				body: []block{allow},
			})
		}
		if o.Purpose == firewall.PurposeNodes {
			rule(ruleName(o), "source_tags", tags)
			continue
		}
		for _, s := range families(o) {
			rule(ruleName(o, s.short()), "source_ranges", quotedList(prefixTexts(s.list, false)))
		}
	}
	return out
}

// firstPriority is the priority of the first rule of a security group. Azure allows 100 to 4096,
// each once per group.
const firstPriority = 1000

func azureBlocks(list []firewall.Rule) []block {
	out := []block{
		variable("hawser_resource_group", "string", "Resource group of the security groups."),
		variable("hawser_security_groups", "map(string)",
			"Name of the security group of each gateway's node, by cluster/gateway, and of all nodes of a cluster, by cluster."),
	}
	priority := map[string]int{}
	for i := range list {
		o := &list[i]
		protocol, ports := "Esp", "*"
		if o.Protocol == firewall.UDP {
			protocol, ports = "Udp", o.Ports()
		}
		rule := func(name, key, value string) {
			// A user may merge two of the groups, so no two rules of a cluster have the
			// same priority.
			n := firstPriority + priority[o.Cluster]
			priority[o.Cluster]++
			out = append(out, block{head: "resource \"azurerm_network_security_rule\" " + strconv.Quote(name),
				args: [][2]string{
					{"name", strconv.Quote(name)}, {"description", strconv.Quote(comment(o))}, {"resource_group_name",
						"var.hawser_resource_group"},
					{"network_security_group_name", "var.hawser_security_groups[" + strconv.Quote(owner(o)) + "]"},
					{"priority", strconv.Itoa(n)}, {"direction", strconv.Quote("Inbound")}, {"access", strconv.Quote("Allow")},
					{"protocol", strconv.Quote(protocol)},
					{"source_port_range", strconv.Quote("*")}, {"destination_port_range", strconv.Quote(ports)}, {key, value},
					{"destination_address_prefix", strconv.Quote("*")},
				}})
		}
		if o.Purpose == firewall.PurposeNodes {
			rule(ruleName(o), "source_address_prefix", strconv.Quote("VirtualNetwork"))
			continue
		}
		for _, s := range families(o) {
			rule(ruleName(o, s.short()), "source_address_prefixes", quotedList(prefixTexts(s.list, false)))
		}
	}
	return out
}
