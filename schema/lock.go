package schema

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
)

// LockKind is the kind of the lock file's document; its apiVersion is APIVersion.
const LockKind = "ClusterSetLock"

// Lock holds every address that was ever given out and not collected since. It
// only grows: what left the topology stays in it, so that nobody else gets the
// address and the same name gets it back, until GC. What GC takes out stands under
// released, as a lock that merely lacks something frees nothing that is published.
//
// A Lock is not changed after it was made.
type Lock struct {
	clusters  map[string]*lockedCluster
	addrs     map[slot]held
	lanes     map[slot]heldLane // of gateways
	conflicts diag.List         // keys that the file holds twice with different values
	released  *Lock             // what GC took out, until it is published without; nil = nothing
}

// lockedCluster is a cluster's part of the global pools.
type lockedCluster struct {
	blocks   []heldPrefix                // in force, at most one a family
	annexes  []heldPrefix                // beside the blocks, for a mapping each
	former   []heldPrefix                // left by a move, still reserved
	mappings map[netip.Prefix]heldPrefix // by pod prefix
}

// held is what a slot has, lowest first within each family's turn of allocation.
type held struct {
	addrs []netip.Addr
	pos   diag.Pos
}

// heldPrefix is a block or a part of one.
type heldPrefix struct {
	prefix netip.Prefix
	pos    diag.Pos
}

// slotKind is the sort of thing that holds addresses. The order is that of allocation.
type slotKind int

const (
	slotGateway slotKind = iota // a gateway's addresses inside the tunnels
	slotVIP                     // an export's clusterset IPs
	slotEgress                  // a cluster's egress addresses
	slotRule                    // an egress rule's addresses
	slotExport                  // an export's global addresses in one cluster
	slotHost                    // one host of a headless export in one cluster
)

// slot names one thing that holds addresses.
type slot struct {
	kind    slotKind
	export  string // namespace/name
	cluster string
	name    string // of the gateway, rule or host
}

// compare orders slots by kind, export and cluster; hosts by length before text,
// so that *-2 comes before *-10.
func (s slot) compare(o slot) int {
	return cmp.Or(
		cmp.Compare(s.kind, o.kind),
		cmp.Compare(s.export, o.export),
		cmp.Compare(s.cluster, o.cluster),
		compareNames(s.name, o.name),
	)
}

func compareNames(a, b string) int {
	if strings.HasPrefix(a, "*-") && strings.HasPrefix(b, "*-") {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}
	return cmp.Compare(a, b)
}

// path names the slot as the lock file does.
func (s slot) path() string {
	cluster := at("clusters", s.cluster)
	switch s.kind {
	case slotGateway:
		return at(cluster+".gateways", s.name)
	case slotVIP:
		return at("exports", s.export) + ".vips"
	case slotEgress:
		return cluster + ".egressIPs"
	case slotRule:
		return at(cluster+".egress", s.name)
	case slotExport:
		return at("exports", s.export) + "." + cluster + ".ips"
	}
	return at(at("exports", s.export)+"."+cluster+".hosts", s.name)
}

// minSpreadBits is the size of the smallest part of a block or pool in which names
// choose addresses: in less they would meet anyway.
const minSpreadBits = 6

// spread says by which name a slot chooses its address, and how far from there. The
// egress addresses of a cluster are its own, from the lowest on; the hosts of a
// StatefulSet stand one beside the other.
func (s slot) spread() (key string, offset uint64, ok bool) {
	if s.kind == slotEgress {
		return "", 0, false
	}
	if nth, numbered := strings.CutPrefix(s.name, "*-"); s.kind == slotHost && numbered {
		n, err := strconv.ParseUint(nth, 10, 16)
		s.name = "*"
		return s.path(), n, err == nil
	}
	return s.path(), 0, true
}

func newLock() *Lock {
	return &Lock{clusters: map[string]*lockedCluster{}, addrs: map[slot]held{}, lanes: map[slot]heldLane{}}
}

// cluster gives a cluster's entry and makes it when there is none.
func (l *Lock) cluster(name string) *lockedCluster {
	c := l.clusters[name]
	if c == nil {
		c = &lockedCluster{mappings: map[netip.Prefix]heldPrefix{}}
		l.clusters[name] = c
	}
	return c
}

// Blocks gives a cluster's blocks of the global pools, IPv4 first.
func (l *Lock) Blocks(cluster string) []netip.Prefix {
	c := l.clusters[cluster]
	if c == nil {
		return nil
	}
	var out []netip.Prefix
	for _, b := range c.blocks {
		out = append(out, b.prefix)
	}
	return out
}

// Mapping gives the part of the cluster's block that a pod prefix is mapped to.
func (l *Lock) Mapping(cluster string, pods netip.Prefix) (netip.Prefix, bool) {
	c := l.clusters[cluster]
	if c == nil {
		return netip.Prefix{}, false
	}
	m, ok := c.mappings[pods.Masked()]
	return m.prefix, ok
}

// Mapped reports whether every pod of the cluster has a global address of its
// own: each pod prefix, in the families that have a global pool, is mapped.
func (l *Lock) Mapped(top *ClusterSet, c *Cluster) bool {
	if top.Spec.Globalnet.Egress == fabric.EgressShared {
		return false
	}
	pods := mappable(top, c)
	return len(pods) > 0 && !slices.ContainsFunc(pods, func(p netip.Prefix) bool {
		_, ok := l.Mapping(c.Name, p)
		return !ok
	})
}

// Egress gives the cluster-wide egress addresses of a cluster; like the other
// queries it may give more than the topology asks for (see Take).
func (l *Lock) Egress(cluster string) []netip.Addr {
	return l.addrs[slot{kind: slotEgress, cluster: cluster}].addrs
}

// EgressRule gives the addresses of an egress rule.
func (l *Lock) EgressRule(cluster, rule string) []netip.Addr {
	return l.addrs[slot{kind: slotRule, cluster: cluster, name: rule}].addrs
}

// Gateway gives a gateway's addresses inside the tunnels.
func (l *Lock) Gateway(cluster, gateway string) []netip.Addr {
	return l.addrs[slot{kind: slotGateway, cluster: cluster, name: gateway}].addrs
}

// VIPs gives the clusterset IPs of an export (namespace/name).
func (l *Lock) VIPs(export string) []netip.Addr {
	return l.addrs[slot{kind: slotVIP, export: export}].addrs
}

// ExportIPs gives an export's global addresses in one cluster.
func (l *Lock) ExportIPs(export, cluster string) []netip.Addr {
	return l.addrs[slot{kind: slotExport, export: export, cluster: cluster}].addrs
}

// Host gives the global addresses of one host of a headless export in one cluster.
func (l *Lock) Host(export, cluster, host string) []netip.Addr {
	return l.addrs[slot{kind: slotHost, export: export, cluster: cluster, name: host}].addrs
}

// Take gives the first n addresses of each family that has a pool, IPv4 first:
// what is in force of what the lock holds. Fewer than n mean that the lock is stale.
func Take(addrs []netip.Addr, n int, pools []netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for _, pool := range pools {
		left := n
		for _, a := range addrs {
			if left > 0 && pool.Contains(a) {
				out = append(out, a)
				left--
			}
		}
	}
	return out
}

// sorted gives the slots of the lock in order.
func (l *Lock) sorted() []slot {
	slots := make([]slot, 0, len(l.addrs))
	for s := range l.addrs {
		slots = append(slots, s)
	}
	slices.SortFunc(slots, slot.compare)
	return slots
}
