package inventory

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Print writes what the kernel has for people, without the elements of large sets. It
// gives the first error of w.
func Print(w io.Writer, k Kernel) error {
	p := &printer{w: w}
	p.line("node %s of cluster %s, Linux %s, conntrack %d of %d", k.Node, k.Cluster, k.Release, k.Conntrack.Count, k.Conntrack.Max)
	for _, e := range k.Errors {
		p.line("not read: %s", e)
	}
	p.links(k.Links)
	p.title("rules")
	for _, r := range k.Rules {
		p.line("  IPv%d %d: %s lookup %d (protocol %d)", r.Family, r.Priority, cmp.Or(r.Select, "all"), r.Table, r.Protocol)
	}
	p.routes(k.Routes, k.Left)
	p.wireguards(k.Wireguard)
	p.title("neighbours of hw-*")
	for _, n := range k.Neighbours {
		kind := "neighbour"
		if n.Forward {
			kind = "forward"
		}
		p.line("  %s %s %s at %s, %s", n.Link, kind, n.Addr, n.MAC, n.State)
	}
	p.tables(k.Tables)
	p.sets(k.Sets)
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
		flag := "down"
		if l.Up {
			flag = "up"
		}
		p.line("  %s: %s, %s, state %s, mtu %d, %s; received %s, sent %s", l.Name, l.Type, flag, l.State, l.MTU,
			cmp.Or(strings.Join(l.Addresses, " "), "no address"), l.Received, l.Sent)
	}
}

// String is how people read it.
func (t Traffic) String() string {
	return fmt.Sprintf("%d packets (%d errors, %d dropped)", t.Packets, t.Errors, t.Dropped)
}

func (p *printer) routes(routes []Route, left int) {
	p.title("routes")
	for _, r := range routes {
		text := fmt.Sprintf("  table %d: %s %s", r.Table, r.Type, r.Dst)
		for _, part := range []struct{ name, value string }{{"via", r.Via}, {"dev", r.Link}, {"src", r.Src}} {
			if part.value != "" {
				text += " " + part.name + " " + part.value
			}
		}
		p.line("%s (protocol %d)", text, r.Protocol)
	}
	if left > 0 {
		p.line("  and %d more of others", left)
	}
}

func (p *printer) wireguards(devices []Wireguard) {
	p.title("wireguard")
	for _, d := range devices {
		p.line("  %s: %s, port %d, public key %s", d.Link, cmp.Or(d.Holder, "nobody answers"), d.Port, d.PublicKey)
		for _, peer := range d.Peers {
			p.line("    peer %s at %s, handshake %s, received %d, sent %d, allowed %s", peer.PublicKey, cmp.Or(peer.Endpoint, "no endpoint"),
				peer.Handshake.UTC().Format("2006-01-02T15:04:05Z"), peer.RxBytes, peer.TxBytes, strings.Join(peer.AllowedIPs, " "))
		}
	}
}

func (p *printer) tables(tables []Table) {
	p.title("nftables")
	for _, t := range tables {
		p.line("  table %s %s", t.Family, t.Name)
		for _, c := range t.Chains {
			hook := ""
			if c.Hook != "" {
				hook = fmt.Sprintf(" (%s hook %s priority %d policy %s)", c.Type, c.Hook, c.Priority, c.Policy)
			}
			p.line("    chain %s%s: %d rules", c.Name, hook, c.Rules)
		}
	}
}

// mostElements of a set are printed.
const mostElements = 20

func (p *printer) sets(sets []Set) {
	p.title("sets of table inet hawser")
	for _, s := range sets {
		p.line("  %s: %d elements", s.Name, s.Count)
		for _, e := range s.Elements[:min(len(s.Elements), mostElements)] {
			p.line("    %s", e)
		}
		if more := len(s.Elements) - mostElements; more > 0 {
			p.line("    and %d more (-o json has all)", more)
		}
	}
}
