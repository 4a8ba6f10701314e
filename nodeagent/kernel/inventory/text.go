package inventory

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Print writes a summary as text, with the first elements of large sets. It returns the
// first error of w.
func Print(w io.Writer, k Kernel) error {
	p := &printer{w: w}
	p.line("node %s of cluster %s, Linux %s, conntrack %d of %d", k.Node, k.Cluster, k.Release, k.Conntrack.Count, k.Conntrack.Max)
	for _, e := range k.Errors {
		p.line("not read: %s", e)
	}
	p.links(k.Links)
	p.rules(k.Rules)
	p.routes(k.Routes, k.RoutesOmitted)
	p.wireguards(k.Wireguard)
	p.title("neighbours of hw-*")
	for _, n := range k.Neighbors {
		p.line("  %s %s at %s, %s", n.Dev, n.Dst, cmp.Or(n.LLAddr, "no address"), strings.ToLower(strings.Join(n.State, " ")))
	}
	p.title("forwarding entries of hw-*")
	for _, e := range k.FDB {
		p.line("  %s %s to %s, %s", e.IfName, e.MAC, cmp.Or(e.Dst, "this node"), cmp.Or(e.State, "learned"))
	}
	p.chains(k.NFTables)
	p.sets(k.NFTables)
	p.title("sysctls")
	for _, name := range slices.Sorted(maps.Keys(k.Sysctls)) {
		p.line("  %s = %s", name, k.Sysctls[name])
	}
	return p.err
}

// printer keeps the first write error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) title(text string) { p.line("\n%s", text) }

func (p *printer) links(links []Link) {
	p.title("links")
	for _, l := range links {
		flag, kind := "down", l.LinkType
		if slices.Contains(l.Flags, "UP") {
			flag = "up"
		}
		if l.LinkInfo != nil {
			kind = l.LinkInfo.Kind
		}
		var addresses []string
		for _, a := range l.AddrInfo {
			addresses = append(addresses, fmt.Sprintf("%s/%d", a.Local, a.PrefixLen))
		}
		p.line("  %s: %s, %s, state %s, mtu %d, %s; received %s, sent %s", l.IfName, kind, flag, strings.ToLower(l.OperState), l.MTU,
			cmp.Or(strings.Join(addresses, " "), "no address"), l.Stats.RX, l.Stats.TX)
	}
}

// String returns the counters as text.
func (t Traffic) String() string {
	return fmt.Sprintf("%d packets (%d errors, %d dropped)", t.Packets, t.Errors, t.Dropped)
}

func (p *printer) rules(rules []Rule) {
	p.title("rules")
	for _, r := range rules {
		action := "lookup " + r.Table
		switch {
		case r.Goto != nil:
			action = fmt.Sprintf("goto %d", *r.Goto)
		case r.Table == "":
			action = "drop"
		}
		p.line("  %s %d: %s %s (protocol %s)", r.Family, r.Priority, r.Selector(), action, r.Protocol)
	}
}

// Selector returns the selector of a rule in the syntax of ip(8).
func (r Rule) Selector() string {
	var words []string
	add := func(format string, value string) {
		if value != "" {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	address := func(addr string, bits *int) string {
		if bits != nil {
			return fmt.Sprintf("%s/%d", addr, *bits)
		}
		return addr
	}
	ports := func(one, first, last int) string {
		switch {
		case one != 0:
			return fmt.Sprint(one)
		case last != 0:
			return fmt.Sprintf("%d-%d", first, last)
		}
		return ""
	}
	if r.Not {
		words = append(words, "not")
	}
	add("from %s", address(r.Src, r.SrcLen))
	add("to %s", address(r.Dst, r.DstLen))
	add("fwmark %s", strings.TrimSuffix(r.FwMark+"/"+r.FwMask, "/"))
	add("iif %s", r.IIF)
	add("oif %s", r.OIF)
	add("ipproto %s", r.IPProto)
	add("sport %s", ports(r.SPort, r.SPortStart, r.SPortEnd))
	add("dport %s", ports(r.DPort, r.DPortStart, r.DPortEnd))
	if r.SuppressPrefixLen != nil {
		add("suppress_prefixlength %s", fmt.Sprint(*r.SuppressPrefixLen))
	}
	return strings.Join(words, " ")
}

func (p *printer) routes(routes []Route, left int) {
	p.title("routes")
	for _, r := range routes {
		text := fmt.Sprintf("  table %s: %s %s", r.Table, r.Type, r.Dst)
		hops := r.Nexthops
		if len(hops) == 0 {
			hops = []Nexthop{{Gateway: r.Gateway, Via: r.Via, Dev: r.Dev}}
		}
		for _, hop := range hops {
			via := hop.Gateway
			if hop.Via != nil {
				via = hop.Via.Host
			}
			if via != "" {
				text += " via " + via
			}
			if hop.Dev != "" {
				text += " dev " + hop.Dev
			}
		}
		if r.PrefSrc != "" {
			text += " src " + r.PrefSrc
		}
		p.line("%s (protocol %s)", text, r.Protocol)
	}
	if left > 0 {
		p.line("  and %d more of other programs", left)
	}
}

func (p *printer) wireguards(devices []Wireguard) {
	p.title("wireguard")
	for _, d := range devices {
		p.line("  %s: %s, port %d, public key %s", d.Link, cmp.Or(d.Mode, "no process answers"), d.Port, d.PublicKey)
		for _, peer := range d.Peers {
			p.line("    peer %s at %s, handshake %s, received %d, sent %d, allowed %s", peer.PublicKey, cmp.Or(peer.Endpoint, "no endpoint"),
				peer.Handshake.UTC().Format("2006-01-02T15:04:05Z"), peer.RxBytes, peer.TxBytes, strings.Join(peer.AllowedIPs, " "))
		}
	}
}

func (p *printer) chains(objects []NFTObject) {
	p.title("nftables")
	for _, o := range objects {
		if o.Table == nil {
			continue
		}
		p.line("  table %s %s", o.Table.Family, o.Table.Name)
		for _, o2 := range objects {
			c := o2.Chain
			if c == nil || c.Family != o.Table.Family || c.Table != o.Table.Name {
				continue
			}
			hook := ""
			if c.Hook != "" && c.Prio != nil {
				hook = fmt.Sprintf(" (%s hook %s priority %d policy %s)", c.Type, c.Hook, *c.Prio, c.Policy)
			}
			p.line("    chain %s%s: %d rules", c.Name, hook, c.Rules)
		}
	}
}

// maxElements is the maximum number of printed elements of a set.
const maxElements = 20

func (p *printer) sets(objects []NFTObject) {
	p.title("sets of table inet hawser")
	for _, o := range objects {
		s := cmp.Or(o.Set, o.Map)
		if s == nil || len(s.Elem) == 0 {
			continue
		}
		p.line("  %s: %d elements", s.Name, len(s.Elem))
		for _, e := range s.Elem[:min(len(s.Elem), maxElements)] {
			p.line("    %s", e)
		}
		if more := len(s.Elem) - maxElements; more > 0 {
			p.line("    and %d more (-o json has all)", more)
		}
	}
}
