package schema

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/schema/fabric"
)

const lockHeader = `# Written by "hawser allocate". Commit this file beside the topology; do not edit it.
# What stands here never moves, and what left the topology stays reserved until
# "hawser allocate --gc". After a merge of two branches run "hawser allocate".
`

// Marshal gives the bytes of the lock file: the same lock, the same bytes. Each
// thing has one line that says all of it, so that whatever git's merge of two
// branches that both allocated keeps or orders, the result can be read.
func (l *Lock) Marshal() ([]byte, error) {
	w := &lockWriter{}
	w.out.WriteString(lockHeader + "apiVersion: " + APIVersion + "\nkind: " + LockKind + "\n")
	w.section("allocated", l)
	if l.released != nil {
		w.section("released", l.released)
	}
	return w.out.Bytes(), nil
}

// section writes what a lock holds under a key; nothing when it is empty.
func (w *lockWriter) section(key string, l *Lock) {
	clusters, exports := l.tree()
	if len(clusters)+len(exports) > 0 {
		w.out.WriteString(key + ":\n")
	}
	for _, n := range clusters {
		w.cluster(l, n.name)
		w.slots(l, n.slots)
	}
	for _, n := range exports {
		slices.SortStableFunc(n.slots, func(a, b slot) int { return cmp.Compare(a.cluster, b.cluster) })
		w.slots(l, n.slots)
	}
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
	for s := range l.lanes {
		if _, has := l.addrs[s]; !has {
			byCluster[s.cluster] = append(byCluster[s.cluster], s)
		}
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
		slices.SortFunc(slots, slot.compare)
		out = append(out, lockNode{name, slots})
	}
	slices.SortFunc(out, func(a, b lockNode) int { return cmp.Compare(a.name, b.name) })
	return out
}

type lockWriter struct{ out bytes.Buffer }

func (w *lockWriter) line(path, list string) {
	w.out.WriteString("  ")
	w.out.WriteString(path)
	w.out.WriteString(": ")
	w.out.WriteString(list)
	w.out.WriteByte('\n')
}

func (w *lockWriter) slots(l *Lock, slots []slot) {
	for _, s := range slots {
		if h, has := l.addrs[s]; has {
			w.line(s.path(), addressList(h.addrs))
		}
		if h, has := l.lanes[s]; has {
			w.line(s.lanePath(), strconv.Itoa(h.lane))
		}
	}
}

func (w *lockWriter) cluster(l *Lock, name string) {
	c, path := l.clusters[name], at("clusters", name)
	if c == nil {
		return
	}
	w.prefixes(path+".blocks", c.blocks)
	w.prefixes(path+".annexes", c.annexes)
	w.prefixes(path+".former", c.former)
	for _, pods := range sortedPrefixes(c.mappings) {
		w.prefixes(at(path+".mappings", pods.String()), []heldPrefix{c.mappings[pods]})
	}
}

func (w *lockWriter) prefixes(path string, list []heldPrefix) {
	if len(list) == 0 {
		return
	}
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = p.prefix.String()
	}
	w.line(path, "["+strings.Join(texts, ", ")+"]")
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
	parts := fabric.Ranges(addrs)
	for i, text := range parts {
		if strings.HasSuffix(text, ":") { // would read as a key
			parts[i] = strconv.Quote(text)
		}
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
