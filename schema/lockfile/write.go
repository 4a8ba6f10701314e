package lockfile

import (
	"bytes"
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
)

// Header is the comment at the top of each lock file.
const Header = `# Written by "hawser allocate". Commit this file with the topology; do not edit it.
# Allocations never move. Addresses of removed objects stay reserved until
# "hawser allocate --gc". After a merge of two branches, run "hawser allocate".
`

// Marshal returns the content of the lock file. It is deterministic. Each allocation is one
// complete line, so Read can read any textual merge of two branches that both allocated.
func (l *Lock) Marshal() ([]byte, error) {
	w := &writer{}
	w.out.WriteString(Header + "apiVersion: " + schema.APIVersion + "\nkind: " + Kind + "\n")
	w.section("allocated", l)
	if l.Released != nil {
		w.section("released", l.Released)
	}
	return w.out.Bytes(), nil
}

// section writes the allocations of a lock under a key. It writes nothing if the lock is empty.
func (w *writer) section(key string, l *Lock) {
	clusters, exports := l.groupClaims()
	if len(clusters)+len(exports) > 0 {
		w.out.WriteString(key + ":\n")
	}
	for _, n := range clusters {
		if c, path := l.Clusters[n.name], fieldpath.Key("clusters", n.name); c != nil {
			w.prefixes(path+".blocks", c.Blocks)
			w.prefixes(path+".extensionBlocks", c.ExtensionBlocks)
			w.prefixes(path+".former", c.Former)
			for _, pods := range SortedPrefixes(c.Mappings) {
				w.prefixes(fieldpath.Key(path+".mappings", pods.String()), []PrefixAllocation{c.Mappings[pods]})
			}
		}
		w.claims(l, n.claims)
	}
	for _, n := range exports {
		slices.SortStableFunc(n.claims, func(a, b Claim) int { return cmp.Compare(a.Cluster, b.Cluster) })
		w.claims(l, n.claims)
	}
}

// claimGroup contains the claims of one cluster or export, in order.
type claimGroup struct {
	name   string
	claims []Claim
}

// groupClaims groups the claims by the cluster or export whose path contains them.
func (l *Lock) groupClaims() (clusters, exports []claimGroup) {
	byCluster, byExport := map[string][]Claim{}, map[string][]Claim{}
	for name := range l.Clusters {
		byCluster[name] = nil
	}
	for s := range l.Ordinals {
		if _, has := l.Addrs[s]; !has {
			byCluster[s.Cluster] = append(byCluster[s.Cluster], s)
		}
	}
	for _, s := range l.Sorted() {
		if s.Export != "" {
			byExport[s.Export] = append(byExport[s.Export], s)
		} else {
			byCluster[s.Cluster] = append(byCluster[s.Cluster], s)
		}
	}
	nodes := func(byName map[string][]Claim) []claimGroup {
		out := make([]claimGroup, 0, len(byName))
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			slices.SortFunc(byName[name], Claim.compare)
			out = append(out, claimGroup{name, byName[name]})
		}
		return out
	}
	return nodes(byCluster), nodes(byExport)
}

type writer struct{ out bytes.Buffer }

func (w *writer) line(path, list string) { w.out.WriteString("  " + path + ": " + list + "\n") }

func (w *writer) claims(l *Lock, claims []Claim) {
	for _, s := range claims {
		if h, has := l.Addrs[s]; has {
			w.line(s.Path(), addressList(h.Addrs))
		}
		if h, has := l.Ordinals[s]; has {
			w.line(s.OrdinalPath(), strconv.Itoa(h.Ordinal))
		}
	}
}

func (w *writer) prefixes(path string, list []PrefixAllocation) {
	if len(list) == 0 {
		return
	}
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = p.Prefix.String()
	}
	w.line(path, "["+strings.Join(texts, ", ")+"]")
}

// SortedPrefixes returns the sorted keys of m.
func SortedPrefixes(m map[netip.Prefix]PrefixAllocation) []netip.Prefix {
	return slices.SortedFunc(maps.Keys(m), netip.Prefix.Compare)
}

// addressList returns addresses as a YAML list, in their order. Consecutive addresses become a
// range.
func addressList(addrs []netip.Addr) string {
	parts := fabric.Ranges(addrs)
	for i, text := range parts {
		if strings.HasSuffix(text, ":") { // YAML would parse it as a key
			parts[i] = strconv.Quote(text)
		}
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
