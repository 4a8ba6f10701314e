// Package lockfile reads and writes the lock of a topology, which records every allocated address.
// It also releases allocations that the topology no longer requests.
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

// Kind is the kind of the lock file's document. Its apiVersion is schema.APIVersion.
const Kind = "ClusterSetLock"

// Lock records every allocated address. It is append-only: addresses of removed clusters and
// exports stay reserved until GC. If an object with the same name is added before GC, it has the
// same addresses again. GC moves removed addresses to Released. A missing line alone never frees a
// published address.
//
// A Lock is immutable after its construction.
type Lock struct {
	Clusters  map[string]*Cluster
	Addrs     map[Claim]Allocation
	Ordinals  map[Claim]OrdinalAllocation // of gateways
	Conflicts diag.List                   // keys that occur twice in the file
	Released  *Lock                       // released by GC or Move but still published; nil if absent
}

// Cluster contains a cluster's prefixes of the global pools.
type Cluster struct {
	Blocks          []PrefixAllocation                // current, at most one per family
	ExtensionBlocks []PrefixAllocation                // outside of the blocks, one per mapping
	Former          []PrefixAllocation                // before a move; still reserved
	Mappings        map[netip.Prefix]PrefixAllocation // by pod prefix
}

// Allocation contains the addresses of a claim, in the order of their allocation.
type Allocation struct {
	Addrs []netip.Addr
	Pos   diag.Pos
}

// PrefixAllocation is a block, an extension block or a mapped part of one.
type PrefixAllocation struct {
	Prefix netip.Prefix
	Pos    diag.Pos
}

// OrdinalAllocation is the ordinal of a gateway.
type OrdinalAllocation struct {
	Ordinal int
	Pos     diag.Pos
}

// ClaimKind is the kind of a claim. The constants are in the order of allocation.
type ClaimKind int

const (
	ClaimGateway      ClaimKind = iota // a gateway's addresses inside the tunnels
	ClaimClusterSetIP                  // an export's clusterset IPs
	ClaimEgress                        // a cluster's egress addresses
	ClaimRule                          // an egress rule's addresses
	ClaimExport                        // an export's global addresses in one cluster
	ClaimHost                          // one host of a headless export in one cluster
)

// Claim identifies one owner of addresses.
type Claim struct {
	Kind    ClaimKind
	Export  string // namespace/name
	Cluster string
	Name    string // of the gateway, rule or host
}

// compare compares claims by kind, export, cluster and name. It compares numbered hosts by length
// first, so *-2 comes before *-10.
func (s Claim) compare(o Claim) int {
	length := 0
	if strings.HasPrefix(s.Name, "*-") && strings.HasPrefix(o.Name, "*-") {
		length = cmp.Compare(len(s.Name), len(o.Name))
	}
	return cmp.Or(cmp.Compare(s.Kind, o.Kind), cmp.Compare(s.Export, o.Export), cmp.Compare(s.Cluster, o.Cluster),
		length, cmp.Compare(s.Name, o.Name))
}

// Path returns the key of the claim in the lock file.
func (s Claim) Path() string {
	cluster := fieldpath.Key("clusters", s.Cluster)
	switch s.Kind {
	case ClaimGateway:
		return fieldpath.Key(cluster+".gateways", s.Name)
	case ClaimClusterSetIP:
		return fieldpath.Key("exports", s.Export) + ".vips"
	case ClaimEgress:
		return cluster + ".egressIPs"
	case ClaimRule:
		return fieldpath.Key(cluster+".egress", s.Name)
	case ClaimExport:
		return fieldpath.Key("exports", s.Export) + "." + cluster + ".ips"
	}
	return fieldpath.Key(fieldpath.Key("exports", s.Export)+"."+cluster+".hosts", s.Name)
}

// OrdinalPath returns the key of a gateway's ordinal in the lock file.
func (s Claim) OrdinalPath() string { return s.Path() + ".ordinal" }

// HashKey returns the name whose hash selects the address of a claim, and the offset from that
// address. Hosts of a StatefulSet have one name and so consecutive addresses. ok is false for the
// egress addresses of a cluster, which are the lowest ones of its block.
func (s Claim) HashKey() (key string, offset uint64, ok bool) {
	if s.Kind == ClaimEgress {
		return "", 0, false
	}
	if nth, numbered := strings.CutPrefix(s.Name, "*-"); s.Kind == ClaimHost && numbered {
		n, err := strconv.ParseUint(nth, 10, 16)
		s.Name = "*"
		return s.Path(), n, err == nil
	}
	return s.Path(), 0, true
}

// New returns an empty lock.
func New() *Lock {
	return &Lock{Clusters: map[string]*Cluster{}, Addrs: map[Claim]Allocation{}, Ordinals: map[Claim]OrdinalAllocation{}}
}

// Cluster returns a cluster's entry. It creates the entry if absent.
func (l *Lock) Cluster(name string) *Cluster {
	c := l.Clusters[name]
	if c == nil {
		c = &Cluster{Mappings: map[netip.Prefix]PrefixAllocation{}}
		l.Clusters[name] = c
	}
	return c
}

// Blocks returns a cluster's global blocks, IPv4 first.
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

// Mapping returns the global prefix to which a pod prefix of the cluster is mapped.
func (l *Lock) Mapping(cluster string, pods netip.Prefix) (netip.Prefix, bool) {
	c := l.Clusters[cluster]
	if c == nil {
		return netip.Prefix{}, false
	}
	m, ok := c.Mappings[pods.Masked()]
	return m.Prefix, ok
}

// Mapped reports whether every pod of the cluster has its own global address. This is the case if
// each of its mappable pod prefixes is mapped.
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

// Egress returns the cluster-wide egress addresses of a cluster. Like the other queries, it can
// return more addresses than the topology requests; see FirstPerFamily.
func (l *Lock) Egress(cluster string) []netip.Addr {
	return l.Addrs[Claim{Kind: ClaimEgress, Cluster: cluster}].Addrs
}

// EgressRule returns the addresses of an egress rule.
func (l *Lock) EgressRule(cluster, rule string) []netip.Addr {
	return l.Addrs[Claim{Kind: ClaimRule, Cluster: cluster, Name: rule}].Addrs
}

// Gateway returns a gateway's tunnel addresses.
func (l *Lock) Gateway(cluster, gateway string) []netip.Addr {
	return l.Addrs[Claim{Kind: ClaimGateway, Cluster: cluster, Name: gateway}].Addrs
}

// Ordinal returns the ordinal of a gateway. It returns false if absent.
func (l *Lock) Ordinal(cluster, gateway string) (int, bool) {
	h, ok := l.Ordinals[Claim{Kind: ClaimGateway, Cluster: cluster, Name: gateway}]
	return h.Ordinal, ok
}

// VIPs returns the clusterset IPs of an export (namespace/name).
func (l *Lock) VIPs(export string) []netip.Addr {
	return l.Addrs[Claim{Kind: ClaimClusterSetIP, Export: export}].Addrs
}

// ExportIPs returns an export's global addresses in one cluster.
func (l *Lock) ExportIPs(export, cluster string) []netip.Addr {
	return l.Addrs[Claim{Kind: ClaimExport, Export: export, Cluster: cluster}].Addrs
}

// Host returns the global addresses of one host of a headless export in one cluster.
func (l *Lock) Host(export, cluster, host string) []netip.Addr {
	return l.Addrs[Claim{Kind: ClaimHost, Export: export, Cluster: cluster, Name: host}].Addrs
}

// FirstPerFamily returns the first n addresses in each pool, in the order of the pools. Only these
// addresses are in use: the others are reserved. If a pool has fewer than n addresses, the lock is
// stale.
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

// Sorted returns the claims that have addresses, in the order of allocation.
func (l *Lock) Sorted() []Claim {
	return slices.SortedFunc(maps.Keys(l.Addrs), Claim.compare)
}

// SortedOrdinals returns the claims of the gateways that have an ordinal, in order.
func (l *Lock) SortedOrdinals() []Claim {
	return slices.SortedFunc(maps.Keys(l.Ordinals), Claim.compare)
}

// Clone returns a copy. The copy shares the address lists of the claims, Conflicts and Released.
func (l *Lock) Clone() *Lock {
	out := New()
	maps.Copy(out.Addrs, l.Addrs)
	maps.Copy(out.Ordinals, l.Ordinals)
	for name, c := range l.Clusters {
		out.Clusters[name] = &Cluster{
			Blocks:          slices.Clone(c.Blocks),
			ExtensionBlocks: slices.Clone(c.ExtensionBlocks),
			Former:          slices.Clone(c.Former),
			Mappings:        maps.Clone(c.Mappings),
		}
	}
	out.Conflicts, out.Released = l.Conflicts, l.Released
	return out
}

// HasPrefix reports whether list contains an allocation of exactly p.
func HasPrefix(list []PrefixAllocation, p netip.Prefix) bool {
	return slices.ContainsFunc(list, func(h PrefixAllocation) bool { return h.Prefix == p })
}

// Prefixes returns the blocks, extension blocks and former blocks of a cluster.
func (c *Cluster) Prefixes() []PrefixAllocation {
	return slices.Concat(c.Blocks, c.ExtensionBlocks, c.Former)
}
