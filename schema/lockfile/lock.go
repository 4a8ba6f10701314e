// Package lockfile owns the lock beside a topology: what it holds, how it is read and written,
// and what is taken out of it. What a topology needs of it are its demands.
package lockfile

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
)

// Kind is the kind of the lock file's document; its apiVersion is APIVersion.
const Kind = "ClusterSetLock"

// Lock holds every address that was ever given out and not collected since. It
// only grows: what left the topology stays in it, so that nobody else gets the
// address and the same name gets it back, until GC. What GC takes out stands under
// released, as a lock that merely lacks something frees nothing that is published.
//
// A Lock is not changed after it was made.
type Lock struct {
	Clusters  map[string]*Cluster
	Addrs     map[Claim]Allocation
	Ordinals  map[Claim]OrdinalAllocation // of gateways
	Conflicts diag.List                   // keys that the file holds twice with different values
	Released  *Lock                       // what GC took out, until it is published without; nil = nothing
}

// Cluster is a cluster's part of the global pools.
type Cluster struct {
	Blocks     []PrefixAllocation                // in force, at most one a family
	Extensions []PrefixAllocation                // beside the blocks, for a mapping each
	Former     []PrefixAllocation                // left by a move, still reserved
	Mappings   map[netip.Prefix]PrefixAllocation // by pod prefix
}

// Allocation is what a slot has, lowest first within each family's turn of allocation.
type Allocation struct {
	Addrs []netip.Addr
	Pos   diag.Pos
}

// PrefixAllocation is a block or a part of one.
type PrefixAllocation struct {
	Prefix netip.Prefix
	Pos    diag.Pos
}

// OrdinalAllocation is the lane that the lock holds for a gateway.
type OrdinalAllocation struct {
	Ordinal int
	Pos     diag.Pos
}

// ClaimKind is the sort of thing that holds addresses. The order is that of allocation.
type ClaimKind int

const (
	SlotGateway       ClaimKind = iota // a gateway's addresses inside the tunnels
	ClaimClusterSetIP                  // an export's clusterset IPs
	SlotEgress                         // a cluster's egress addresses
	SlotRule                           // an egress rule's addresses
	SlotExport                         // an export's global addresses in one cluster
	SlotHost                           // one host of a headless export in one cluster
)

// Claim names one thing that holds addresses.
type Claim struct {
	Kind    ClaimKind
	Export  string // namespace/name
	Cluster string
	Name    string // of the gateway, rule or host
}

// compare orders slots by kind, export and cluster; hosts by length before text,
// so that *-2 comes before *-10.
func (s Claim) compare(o Claim) int {
	length := 0
	if strings.HasPrefix(s.Name, "*-") && strings.HasPrefix(o.Name, "*-") {
		length = cmp.Compare(len(s.Name), len(o.Name))
	}
	return cmp.Or(cmp.Compare(s.Kind, o.Kind), cmp.Compare(s.Export, o.Export), cmp.Compare(s.Cluster, o.Cluster),
		length, cmp.Compare(s.Name, o.Name))
}

// Path names the slot as the lock file does.
func (s Claim) Path() string {
	cluster := fieldpath.Key("clusters", s.Cluster)
	switch s.Kind {
	case SlotGateway:
		return fieldpath.Key(cluster+".gateways", s.Name)
	case ClaimClusterSetIP:
		return fieldpath.Key("exports", s.Export) + ".vips"
	case SlotEgress:
		return cluster + ".egressIPs"
	case SlotRule:
		return fieldpath.Key(cluster+".egress", s.Name)
	case SlotExport:
		return fieldpath.Key("exports", s.Export) + "." + cluster + ".ips"
	}
	return fieldpath.Key(fieldpath.Key("exports", s.Export)+"."+cluster+".hosts", s.Name)
}

// LanePath names a gateway's lane as the lock file does.
func (s Claim) LanePath() string { return s.Path() + ".lane" }

// HashKey says by which name a slot chooses its address, and how far from there. The
// egress addresses of a cluster are its own, from the lowest on; the hosts of a
// StatefulSet stand one beside the other.
func (s Claim) HashKey() (key string, offset uint64, ok bool) {
	if s.Kind == SlotEgress {
		return "", 0, false
	}
	if nth, numbered := strings.CutPrefix(s.Name, "*-"); s.Kind == SlotHost && numbered {
		n, err := strconv.ParseUint(nth, 10, 16)
		s.Name = "*"
		return s.Path(), n, err == nil
	}
	return s.Path(), 0, true
}

// New gives an empty lock.
func New() *Lock {
	return &Lock{Clusters: map[string]*Cluster{}, Addrs: map[Claim]Allocation{}, Ordinals: map[Claim]OrdinalAllocation{}}
}

// Cluster gives a cluster's entry and makes it when there is none.
func (l *Lock) Cluster(name string) *Cluster {
	c := l.Clusters[name]
	if c == nil {
		c = &Cluster{Mappings: map[netip.Prefix]PrefixAllocation{}}
		l.Clusters[name] = c
	}
	return c
}

// Blocks gives a cluster's blocks of the global pools, IPv4 first.
func (l *Lock) Blocks(cluster string) []netip.Prefix {
	c := l.Clusters[cluster]
	if c == nil {
		return nil
	}
	var out []netip.Prefix
	for _, b := range c.Blocks {
		out = append(out, b.Prefix)
	}
	return out
}

// Mapping gives the part of the cluster's block that a pod prefix is mapped to.
func (l *Lock) Mapping(cluster string, pods netip.Prefix) (netip.Prefix, bool) {
	c := l.Clusters[cluster]
	if c == nil {
		return netip.Prefix{}, false
	}
	m, ok := c.Mappings[pods.Masked()]
	return m.Prefix, ok
}

// Mapped reports whether every pod of the cluster has a global address of its
// own: each pod prefix, in the families that have a global pool, is mapped.
func (l *Lock) Mapped(top *schema.ClusterSet, c *schema.Cluster) bool {
	if top.Spec.Globalnet.Egress == fabric.EgressShared {
		return false
	}
	pods := top.MappablePodCIDRs(c)
	return len(pods) > 0 && !slices.ContainsFunc(pods, func(p netip.Prefix) bool {
		_, ok := l.Mapping(c.Name, p)
		return !ok
	})
}

// Egress gives the cluster-wide egress addresses of a cluster; like the other
// queries it may give more than the topology asks for (see Take).
func (l *Lock) Egress(cluster string) []netip.Addr {
	return l.Addrs[Claim{Kind: SlotEgress, Cluster: cluster}].Addrs
}

// EgressRule gives the addresses of an egress rule.
func (l *Lock) EgressRule(cluster, rule string) []netip.Addr {
	return l.Addrs[Claim{Kind: SlotRule, Cluster: cluster, Name: rule}].Addrs
}

// Gateway gives a gateway's addresses inside the tunnels.
func (l *Lock) Gateway(cluster, gateway string) []netip.Addr {
	return l.Addrs[Claim{Kind: SlotGateway, Cluster: cluster, Name: gateway}].Addrs
}

// Ordinal gives the lane of a gateway; false when the lock holds none.
func (l *Lock) Ordinal(cluster, gateway string) (int, bool) {
	h, ok := l.Ordinals[Claim{Kind: SlotGateway, Cluster: cluster, Name: gateway}]
	return h.Ordinal, ok
}

// VIPs gives the clusterset IPs of an export (namespace/name).
func (l *Lock) VIPs(export string) []netip.Addr {
	return l.Addrs[Claim{Kind: ClaimClusterSetIP, Export: export}].Addrs
}

// ExportIPs gives an export's global addresses in one cluster.
func (l *Lock) ExportIPs(export, cluster string) []netip.Addr {
	return l.Addrs[Claim{Kind: SlotExport, Export: export, Cluster: cluster}].Addrs
}

// Host gives the global addresses of one host of a headless export in one cluster.
func (l *Lock) Host(export, cluster, host string) []netip.Addr {
	return l.Addrs[Claim{Kind: SlotHost, Export: export, Cluster: cluster, Name: host}].Addrs
}

// FirstPerFamily gives the first n addresses of each family that has a pool, IPv4 first:
// what is in force of what the lock holds. Fewer than n mean that the lock is stale.
func FirstPerFamily(addrs []netip.Addr, n int, pools []netip.Prefix) []netip.Addr {
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

// Sorted gives the slots of the lock in order.
func (l *Lock) Sorted() []Claim {
	return slices.SortedFunc(maps.Keys(l.Addrs), Claim.compare)
}

// SortedLanes gives the gateways that have a lane, in order.
func (l *Lock) SortedLanes() []Claim {
	return slices.SortedFunc(maps.Keys(l.Ordinals), Claim.compare)
}

// Clone copies what its callers change.
func (l *Lock) Clone() *Lock {
	out := New()
	maps.Copy(out.Addrs, l.Addrs)
	maps.Copy(out.Ordinals, l.Ordinals)
	for name, c := range l.Clusters {
		out.Clusters[name] = &Cluster{
			Blocks:     slices.Clone(c.Blocks),
			Extensions: slices.Clone(c.Extensions),
			Former:     slices.Clone(c.Former),
			Mappings:   maps.Clone(c.Mappings),
		}
	}
	out.Conflicts, out.Released = l.Conflicts, l.Released
	return out
}

// HasPrefix reports whether a prefix is in a list.
func HasPrefix(list []PrefixAllocation, p netip.Prefix) bool {
	return slices.ContainsFunc(list, func(h PrefixAllocation) bool { return h.Prefix == p })
}

// Prefixes gives the blocks of a cluster, annexes and former ones too.
func (c *Cluster) Prefixes() []PrefixAllocation {
	return slices.Concat(c.Blocks, c.Extensions, c.Former)
}
