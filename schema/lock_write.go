package schema

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const lockHeader = `# Written by "hawser allocate". Commit this file beside the topology; do not edit it.
# What stands here never moves, and what left the topology stays reserved until
# "hawser allocate --gc". After a merge of two branches run "hawser allocate".
`

// Marshal gives the bytes of the lock file: the same lock, the same bytes. Each
// thing has its own line, so that git can merge two branches that both allocated.
func (l *Lock) Marshal() ([]byte, error) {
	w := &lockWriter{}
	w.out.WriteString(lockHeader)
	w.line(0, "apiVersion", APIVersion)
	w.line(0, "kind", LockKind)
	clusters, exports := l.tree()
	w.open(0, "clusters", len(clusters))
	for _, c := range clusters {
		w.cluster(l, c)
	}
	w.open(0, "exports", len(exports))
	for _, e := range exports {
		w.export(l, e)
	}
	return w.out.Bytes(), nil
}

// lockNode is the slots under one cluster or export, in order.
type lockNode struct {
	name  string
	slots []slot
}

// tree sorts the slots under the clusters and exports that they are written under.
func (l *Lock) tree() (clusters, exports []lockNode) {
	byCluster, byExport := map[string][]slot{}, map[string][]slot{}
	for name := range l.clusters {
		byCluster[name] = nil
	}
	for _, s := range l.sorted() {
		if s.export != "" {
			byExport[s.export] = append(byExport[s.export], s)
		} else {
			byCluster[s.cluster] = append(byCluster[s.cluster], s)
		}
	}
	return nodes(byCluster), nodes(byExport)
}

func nodes(bySlot map[string][]slot) []lockNode {
	out := make([]lockNode, 0, len(bySlot))
	for name, slots := range bySlot {
		out = append(out, lockNode{name, slots})
	}
	slices.SortFunc(out, func(a, b lockNode) int { return cmp.Compare(a.name, b.name) })
	return out
}

type lockWriter struct{ out bytes.Buffer }

func (w *lockWriter) line(depth int, key, value string) {
	w.out.WriteString(strings.Repeat("  ", depth))
	w.out.WriteString(quoteKey(key))
	w.out.WriteByte(':')
	if value != "" {
		w.out.WriteByte(' ')
		w.out.WriteString(value)
	}
	w.out.WriteByte('\n')
}

// open writes a key whose value stands below it; nothing when that is empty.
func (w *lockWriter) open(depth int, key string, children int) {
	if children > 0 {
		w.line(depth, key, "")
	}
}

func (w *lockWriter) cluster(l *Lock, n lockNode) {
	w.line(1, n.name, "")
	if c := l.clusters[n.name]; c != nil {
		w.prefixes("blocks", c.blocks)
		w.prefixes("former", c.former)
		w.open(2, "mappings", len(c.mappings))
		for _, pods := range sortedPrefixes(c.mappings) {
			w.line(3, pods.String(), c.mappings[pods].prefix.String())
		}
	}
	for i, s := range n.slots {
		text := addressList(l.addrs[s].addrs)
		first := i == 0 || n.slots[i-1].kind != s.kind
		switch s.kind {
		case slotEgress:
			w.line(2, "egressIPs", text)
		case slotGateway:
			w.group(first, 2, "gateways")
			w.line(3, s.name, text)
		case slotRule:
			w.group(first, 2, "egress")
			w.line(3, s.name, text)
		}
	}
}

func (w *lockWriter) group(first bool, depth int, key string) {
	if first {
		w.line(depth, key, "")
	}
}

// export writes an export; under each cluster its addresses come before its hosts.
func (w *lockWriter) export(l *Lock, n lockNode) {
	w.line(1, n.name, "")
	parts := slices.Clone(n.slots)
	slices.SortStableFunc(parts, func(a, b slot) int { return cmp.Compare(a.cluster, b.cluster) })
	var last slot
	for i, s := range parts {
		text := addressList(l.addrs[s].addrs)
		if s.kind == slotVIP {
			w.line(2, "vips", text)
			continue
		}
		if i == 0 || last.cluster == "" {
			w.line(2, "clusters", "")
		}
		w.group(s.cluster != last.cluster, 3, s.cluster)
		if s.kind == slotExport {
			w.line(4, "ips", text)
		} else {
			w.group(s.cluster != last.cluster || last.kind != slotHost, 4, "hosts")
			w.line(5, s.name, text)
		}
		last = s
	}
}

func (w *lockWriter) prefixes(key string, list []heldPrefix) {
	if len(list) == 0 {
		return
	}
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = p.prefix.String()
	}
	w.line(2, key, "["+strings.Join(texts, ", ")+"]")
}

func sortedPrefixes(m map[netip.Prefix]heldPrefix) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(m))
	for p := range m {
		out = append(out, p)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// addressList writes addresses in their order; neighbours become a range.
func addressList(addrs []netip.Addr) string {
	var parts []string
	for i := 0; i < len(addrs); {
		j := i
		for j+1 < len(addrs) && addrs[j].Next() == addrs[j+1] {
			j++
		}
		text := addrs[i].String()
		if j > i {
			text = fmt.Sprintf("%s-%s", addrs[i], addrs[j])
		}
		if strings.HasSuffix(text, ":") { // would read as a key
			text = strconv.Quote(text)
		}
		parts = append(parts, text)
		i = j + 1
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// quoteKey quotes what some YAML reader takes for something else than text.
func quoteKey(key string) string {
	switch key {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return strconv.Quote(key)
	}
	if key == "" || key[0] < 'a' || key[0] > 'z' {
		return strconv.Quote(key)
	}
	return key
}
