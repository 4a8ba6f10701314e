package access

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/reach"
)

// Changes is the access between clusters that a new fabric adds and removes. It covers forwarding
// by gateways, not the readiness of backends. It excludes access of a cluster to itself.
type Changes struct {
	Added   []Change `json:"added"`
	Removed []Change `json:"removed"`
}

// Change is access of some clusters that the same path of the topology adds or removes.
type Change struct {
	// From has the clusters, sorted. It is empty if All is true.
	From []string `json:"from,omitempty"`
	// All means all clusters except those in Except.
	All    bool       `json:"all,omitempty"`
	Except []string   `json:"except,omitempty"`
	To     []Resource `json:"to"`
	Path   string     `json:"path"`             // of the topology, that decides
	Source string     `json:"source,omitempty"` // file:line of Path; set by the caller
	// Gone reports that the path is not in the new topology.
	Gone bool `json:"gone,omitempty"`
	// Uncertain reports, for removed access, that open connections may continue: gateways keep
	// the flows of removed exports and ports, but check allow lists for every packet.
	Uncertain bool `json:"uncertain,omitempty"`
}

// Resource is an export, all dynamic exports from some namespaces, or a prefix of pods or Services.
// The prefix is reached at its own addresses.
type Resource struct {
	Export     string `json:"export,omitempty"`     // namespace/name
	Namespaces string `json:"namespaces,omitempty"` // a pattern of dynamicExports
	// ExceptNamespaces are patterns within Namespaces whose access does not change.
	ExceptNamespaces []string `json:"except_namespaces,omitempty"`
	Prefix           string   `json:"prefix,omitempty"`
	Ports            []string `json:"ports,omitempty"` // such as 80/TCP; none = all
	In               []string `json:"in"`              // clusters that have it, sorted
}

// Diff returns access that the second fabric adds to the first or removes from it. It compares
// changed resources, and everything that a changed cluster reaches or owns.
func Diff(before, after *Set) Changes {
	d := &differ{before: before, after: after, groups: newClusterGroups(before, after), pending: map[string]*pendingChange{}}
	for _, g := range d.groups.list {
		d.changed = d.changed || g.changed
	}
	d.diffExports()
	var patterns []string
	for _, s := range []*Set{before, after} {
		if dynamic := s.model.Fabric().DynamicExports; dynamic != nil {
			patterns = append(patterns, dynamic.Namespaces...)
		}
	}
	slices.Sort(patterns)
	for _, pattern := range slices.Compact(patterns) {
		d.diffPattern(pattern)
	}
	d.diffPrefixes()
	out := Changes{Added: []Change{}, Removed: []Change{}}
	for _, c := range d.order {
		if c.added {
			out.Added = append(out.Added, c.Change)
		} else {
			c.Uncertain = c.uncertain(after)
			out.Removed = append(out.Removed, c.Change)
		}
	}
	return out
}

// uncertain reports whether gateways of the new fabric keep open connections of removed access.
func (c *Change) uncertain(after *Set) bool {
	if !strings.HasPrefix(c.Path, "dynamicExports") && (!strings.HasPrefix(c.Path, "exports[") || strings.HasSuffix(c.Path, ".allow")) {
		return false
	}
	return !slices.ContainsFunc(c.To, func(to Resource) bool {
		_, gone := after.deniedCluster(to.In...)
		return gone
	})
}

// differ is the state of one call of Diff.
type differ struct {
	before, after *Set
	groups        *clusterGroups
	changed       bool // of a group
	pending       map[string]*pendingChange
	order         []*pendingChange
}

type pendingChange struct {
	Change
	added bool
}

// comparison is a resource in one cluster, or in several identical ones, in both fabrics.
type comparison struct {
	resource      Resource
	cluster       string   // one of resource.In
	namedClusters []string // clusters that a list names, sorted
	before, after func(from string) bool
	cause         func(from string, added bool) (path string, gone bool)
	onlyChanged   bool // only clusters that changed can differ
}

// delta is the clusters that gain or lose access to a resource for one cause.
type delta struct {
	from     subjects
	path     string
	gone     bool
	added    bool
	resource Resource
}

// compare returns the clusters that gain or lose access to one resource.
func (d *differ) compare(q comparison) []*delta {
	named := make(map[string]bool, len(q.namedClusters))
	for _, n := range q.namedClusters {
		named[n] = true
	}
	var out []*delta
	deltaFor := func(from string, groupSize int) *delta {
		after := q.after(from)
		if after == q.before(from) {
			return nil
		}
		path, gone := q.cause(from, after)
		if groupSize > 1 && path == clusterPath(from) {
			path, gone = "clusters", false // one topology line per cluster
		}
		i := slices.IndexFunc(out, func(p *delta) bool { return p.path == path && p.added == after })
		if i < 0 {
			i = len(out)
			out = append(out, &delta{path: path, gone: gone, added: after, resource: q.resource})
		}
		return out[i]
	}
	for _, g := range d.groups.list {
		from := g.representative(named, q.cluster)
		if from == "" || q.onlyChanged && !g.changed {
			continue
		}
		if p := deltaFor(from, len(g.members)); p != nil {
			p.from.groups = append(p.from.groups, g.index)
		}
	}
	deltaByName := map[string]*delta{}
	for _, n := range q.namedClusters {
		if g := d.groups.byName[n]; n != q.cluster && g != nil && (!q.onlyChanged || g.changed) {
			if deltaByName[n] = deltaFor(n, 1); deltaByName[n] != nil {
				deltaByName[n].from.names = append(deltaByName[n].from.names, n)
			}
		}
	}
	for _, p := range out {
		d.normalizeSubjects(p, q, deltaByName)
	}
	return out
}

// normalizeSubjects sets the exceptions of a delta, and whether it covers all clusters.
func (d *differ) normalizeSubjects(p *delta, q comparison, deltaByName map[string]*delta) {
	s := &p.from
	if len(s.groups) == 0 {
		return
	}
	s.all = true
	for _, g := range d.groups.list {
		if g.exists(p.added) && !slices.Contains(s.groups, g.index) && slices.ContainsFunc(g.members,
			func(m string) bool { return m != q.cluster && deltaByName[m] != p }) {
			s.all = false
			break
		}
	}
	for _, n := range q.namedClusters {
		if g := d.groups.byName[n]; g != nil && g.exists(p.added) && n != q.cluster && deltaByName[n] != p && (s.all ||
			slices.Contains(s.groups, g.index)) {
			s.except = append(s.except, n)
		}
	}
	if s.all {
		s.groups, s.names = nil, nil
		return
	}
	if i, found := slices.BinarySearch(s.except, q.cluster); !found && len(q.resource.In) == 1 &&
		slices.Contains(s.groups, d.groups.byName[q.cluster].index) {
		s.except = slices.Insert(s.except, i, q.cluster)
	}
}

// mergeBy joins deltas with the same clusters, cause and prefix, and the same key.
func mergeBy(list []*delta, key func(*delta) []string, join func(into, p *delta)) []*delta {
	byKey := map[string]*delta{}
	var out []*delta
	for _, p := range list {
		k := fmt.Sprint(p.added, p.path, key(p), p.resource.Prefix) + p.from.key()
		if existing := byKey[k]; existing != nil {
			join(existing, p)
			continue
		}
		byKey[k], out = p, append(out, p)
	}
	return out
}

// addDeltas adds the deltas of one export, pattern or cluster's prefixes to the result. It first
// merges deltas that differ only in the cluster, then deltas that differ only in the port.
func (d *differ) addDeltas(list []*delta) {
	list = mergeBy(list, func(p *delta) []string { return p.resource.Ports },
		func(into, p *delta) { into.resource.In = append(into.resource.In, p.resource.In...) })
	for _, p := range list {
		slices.Sort(p.resource.In)
	}
	list = mergeBy(list, func(p *delta) []string { return p.resource.In },
		func(into, p *delta) { into.resource.Ports = append(into.resource.Ports, p.resource.Ports...) })
	for _, p := range list {
		key := fmt.Sprint(p.added, p.path) + p.from.key()
		c := d.pending[key]
		if c == nil {
			c = &pendingChange{added: p.added, Change: Change{Path: p.path, Gone: p.gone, All: p.from.all,
				Except: p.from.except}}
			if !c.All {
				c.From, c.Except = d.groups.expand(&p.from), nil
			}
			d.pending[key] = c
			d.order = append(d.order, c)
		}
		c.To = append(c.To, p.resource)
	}
}

// diffExports compares the exports of the topologies.
func (d *differ) diffExports() {
	b, a := d.before.model.Fabric().Exports, d.after.model.Fabric().Exports
	for len(b) > 0 || len(a) > 0 {
		order := len(b) - len(a) // if one fabric has no more
		if len(b) > 0 && len(a) > 0 {
			order = cmp.Or(cmp.Compare(a[0].Namespace, b[0].Namespace), cmp.Compare(a[0].Name, b[0].Name))
		}
		var before, after *fabric.Export
		if order <= 0 {
			after, a = &a[0], a[1:]
		}
		if order >= 0 {
			before, b = &b[0], b[1:]
		}
		d.diffExport(before, after)
	}
}

// diffExport compares one export; nil if a fabric does not have it.
func (d *differ) diffExport(before, after *fabric.Export) {
	unchanged := before != nil && after != nil && sameAccess(before, after)
	if unchanged && !d.changed {
		return
	}
	var names, clusters []string
	var ports []fabric.Port
	for _, e := range []*fabric.Export{after, before} {
		if e == nil {
			continue
		}
		names = append(names, e.Allow...)
		for i := range e.Clusters {
			clusters = append(clusters, e.Clusters[i].Name)
		}
		for _, p := range e.Ports {
			if !slices.ContainsFunc(ports, func(o fabric.Port) bool { return reach.PortID(o) == reach.PortID(p) }) {
				ports = append(ports, p)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	slices.Sort(clusters)
	var deltas []*delta
	for _, cluster := range slices.Compact(clusters) {
		b, a := d.before.exportTarget(before, cluster), d.after.exportTarget(after, cluster)
		for _, port := range ports {
			deltas = append(deltas, d.compare(comparison{
				cluster: cluster, namedClusters: names,
				onlyChanged: unchanged && !d.groups.byName[cluster].changed,
				resource:    Resource{Export: cmp.Or(after, before).ID(), Ports: []string{portID(port)}, In: []string{cluster}},
				before:      func(from string) bool { return hasPort(before, port) && b.ReachableFrom(from, port) },
				after:       func(from string) bool { return hasPort(after, port) && a.ReachableFrom(from, port) },
				cause: func(from string, added bool) (string, bool) {
					if added {
						return exportCause(d.before, before, after, from, cluster, port), false
					}
					_, removed := d.after.deniedCluster(cluster, from)
					gone := removed || after == nil || after.ClusterPart(cluster) == nil
					return exportCause(d.after, after, before, from, cluster, port), gone
				},
			})...)
		}
	}
	d.addDeltas(deltas)
}

// exportTarget returns a cluster's part of an export; nil without one.
func (s *Set) exportTarget(e *fabric.Export, cluster string) *reach.Target {
	if e == nil {
		return nil
	}
	return s.model.Export(e, cluster)
}

// portID returns number and protocol, as in 80/TCP.
func portID(p fabric.Port) string {
	protocol, number, _ := strings.Cut(reach.PortID(p), "/")
	return number + "/" + protocol
}

// sameAccess reports whether the same clusters have access to two versions of an export.
func sameAccess(a, b *fabric.Export) bool {
	return a.Type == b.Type && (a.Allow == nil) == (b.Allow == nil) && slices.Equal(a.Allow, b.Allow) &&
		slices.EqualFunc(a.Ports, b.Ports, func(x, y fabric.Port) bool { return reach.PortID(x) == reach.PortID(y) }) &&
		slices.EqualFunc(a.Clusters, b.Clusters, func(x, y fabric.ExportCluster) bool {
			return x.Name == y.Name && (len(x.IPs) > 0) == (len(y.IPs) > 0) && (len(x.Hosts) > 0) == (len(y.Hosts) > 0)
		})
}

// exportCause returns the topology path that denies access in the fabric of without. e is the
// export in that fabric, and other is the export in the fabric with access.
func exportCause(without *Set, e, other *fabric.Export, from, cluster string, port fabric.Port) string {
	if e == nil {
		return exportPath(other.ID())
	}
	switch d := without.deniedExport(e, from, cluster, port); {
	case d.address && e.Type != other.Type:
		return exportPath(e.ID()) + ".type"
	case d.address:
		return clusterPath(cluster)
	default:
		return d.path
	}
}

// diffPattern compares access to dynamic exports from the namespaces of a pattern.
func (d *differ) diffPattern(pattern string) {
	b, a := d.before.model.Fabric().DynamicExports, d.after.model.Fabric().DynamicExports
	beforeAll, beforeOnly := mayExport(b, pattern)
	afterAll, afterOnly := mayExport(a, pattern)
	named := slices.Compact(slices.Sorted(slices.Values(slices.Concat(beforeOnly, afterOnly))))
	var deltas []*delta
	compare := func(clusters []string) {
		cluster := clusters[0]
		before, after := beforeAll || slices.Contains(beforeOnly, cluster), afterAll || slices.Contains(afterOnly, cluster)
		resource := Resource{Namespaces: pattern, In: clusters}
		switch {
		case before && !after:
			resource.ExceptNamespaces = narrowerPatterns(a, pattern)
		case after && !before:
			resource.ExceptNamespaces = narrowerPatterns(b, pattern)
		}
		tb, ta := d.before.model.Dynamic(cluster), d.after.model.Dynamic(cluster)
		deltas = append(deltas, d.compare(comparison{
			cluster: cluster, resource: resource, onlyChanged: before == after && !d.groups.byName[cluster].changed,
			before: func(from string) bool { return before && tb.ReachableFrom(from, fabric.Port{}) },
			after:  func(from string) bool { return after && ta.ReachableFrom(from, fabric.Port{}) },
			cause: func(from string, added bool) (string, bool) {
				without, allowed := d.after, after
				if added {
					without, allowed = d.before, before
				}
				if !allowed {
					return "dynamicExports", !added && a == nil
				}
				_, removed := without.deniedCluster(cluster, from)
				return without.deniedDynamic(from, cluster).path, removed && !added
			},
		})...)
	}
	for _, g := range d.groups.list {
		if unnamed := slices.DeleteFunc(slices.Clone(g.members), func(n string) bool {
			return slices.Contains(named, n)
		}); len(unnamed) > 0 {
			compare(unnamed)
		}
	}
	for _, n := range named {
		if d.groups.byName[n] != nil {
			compare([]string{n})
		}
	}
	d.addDeltas(deltas)
}

// mayExport returns which clusters may export from the namespaces of a pattern: all, or some.
func mayExport(d *fabric.DynamicExports, pattern string) (all bool, only []string) {
	if !d.Matches(pattern) {
		return false, nil
	}
	only, restricted := d.AllowedClusters(pattern)
	return !restricted, only
}

// narrowerPatterns returns the patterns that are narrower than a pattern.
func narrowerPatterns(d *fabric.DynamicExports, pattern string) []string {
	if d == nil {
		return nil
	}
	exports := &fabric.DynamicExports{Namespaces: []string{pattern}}
	return slices.DeleteFunc(slices.Clone(d.Namespaces), func(p string) bool { return p == pattern || !exports.Matches(p) })
}

// diffPrefixes compares access to pods and Services at their own addresses.
func (d *differ) diffPrefixes() {
	for _, g := range d.groups.list {
		for _, name := range g.members {
			b, a := ownPrefixes(d.before.model.Cluster(name)), ownPrefixes(d.after.model.Cluster(name))
			unchanged := slices.Equal(b, a) && !g.changed
			if unchanged && !d.changed {
				continue
			}
			all := slices.Concat(b, a)
			slices.SortFunc(all, netip.Prefix.Compare)
			var deltas []*delta
			for _, p := range slices.Compact(all) {
				tb, ta := d.before.model.Prefix(name, p), d.after.model.Prefix(name, p)
				deltas = append(deltas, d.compare(comparison{
					cluster: name, onlyChanged: unchanged, resource: Resource{Prefix: p.String(), In: []string{name}},
					before: func(from string) bool { return tb.ReachableFrom(from, fabric.Port{}) },
					after:  func(from string) bool { return ta.ReachableFrom(from, fabric.Port{}) },
					cause: func(from string, added bool) (string, bool) {
						if added {
							return d.before.deniedAddress(from, name, p.Masked().Addr()).path, false
						}
						_, removed := d.after.deniedCluster(name, from)
						return d.after.deniedAddress(from, name, p.Masked().Addr()).path, removed
					},
				})...)
			}
			d.addDeltas(deltas)
		}
	}
}

// ownPrefixes returns the prefixes of a cluster that others may reach at their own addresses.
func ownPrefixes(c *fabric.Cluster) []netip.Prefix {
	if c == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Concat(c.PodCIDRs, c.ServiceCIDRs),
		func(p netip.Prefix) bool { return c.IsGlobalnet(fabric.Family(p.Addr())) })
}
