package health

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/stablehash"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/schema/fabric"
)

// Preferences has the order of the links of each pair of clusters. The order depends only on the
// names of clusters and gateways, so all nodes of both clusters compute the same order. No gateway
// has more first choices than its fair share plus a quarter, rounded up. Preferences is immutable.
type Preferences struct {
	names    []string // of clusters and gateways in the fabric, for Same
	graph    projection.Graph
	clusters []clusterGateways // by cluster
	first    []gatewayPair     // of each pair of clusters, see index
}

// clusterGateways is a cluster and its gateways, by name.
type clusterGateways struct {
	cluster  string
	gateways []string
	hashes   []uint64 // of cluster/gateway, mixed
}

// gatewayPair has the index of a gateway of the cluster with the lower name, and of the other
// cluster.
type gatewayPair struct{ low, high uint16 }

// headroomPercent is the percentage by which a gateway may exceed its fair share. With more
// headroom, more pairs use their best link, and fewer pairs move when a cluster is added or
// removed. With less headroom, shares are more equal.
const headroomPercent = 25

// NewPreferences computes the preferences of a fabric. before is the previous shape of its
// clusters, or nil. The cost grows with the square of the number of clusters, so reuse the result
// while Same is true.
func NewPreferences(f *fabric.Fabric, before *fabric.Shape) *Preferences {
	t := &Preferences{names: appendNames(nil, f), graph: projection.NewGraph(f, before)}
	for i := range f.Clusters {
		if len(f.Clusters[i].Gateways) > 0 {
			t.clusters = append(t.clusters, newClusterGateways(&f.Clusters[i]))
		}
	}
	slices.SortFunc(t.clusters, func(a, b clusterGateways) int { return strings.Compare(a.cluster, b.cluster) })
	t.assign()
	return t
}

// Graph returns the graph of clusters of the preferences.
func (t *Preferences) Graph() projection.Graph { return t.graph }

func newClusterGateways(c *fabric.Cluster) clusterGateways {
	s := clusterGateways{cluster: c.Name}
	for _, g := range c.Gateways {
		s.gateways = append(s.gateways, g.Name)
	}
	slices.Sort(s.gateways)
	for _, g := range s.gateways {
		s.hashes = append(s.hashes, stablehash.Mix64(stablehash.Sum64(c.Name+"/"+g)))
	}
	return s
}

// appendNames appends the names that the preferences depend on. An empty string, which is not a DNS
// label, ends each cluster.
func appendNames(out []string, f *fabric.Fabric) []string {
	for i := range f.Clusters {
		out = append(out, f.Clusters[i].Name)
		for _, g := range f.Clusters[i].Gateways {
			out = append(out, g.Name)
		}
		out = append(out, "")
	}
	return out
}

// Same reports whether NewPreferences would return equal preferences. It costs much less.
func (t *Preferences) Same(f *fabric.Fabric, before *fabric.Shape) bool {
	if !t.graph.Same(f, before) {
		return false
	}
	remaining := t.names
	matches := func(name string) bool {
		if len(remaining) == 0 || remaining[0] != name {
			return false
		}
		remaining = remaining[1:]
		return true
	}
	for i := range f.Clusters {
		if !matches(f.Clusters[i].Name) {
			return false
		}
		for _, g := range f.Clusters[i].Gateways {
			if !matches(g.Name) {
				return false
			}
		}
		if !matches("") {
			return false
		}
	}
	return len(remaining) == 0
}

// assign sets the first choice of each pair of clusters. It is the link with the highest score
// whose gateways are both below their bound. The order of pairs depends only on their names, so an
// added cluster affects only the pairs that its pairs displace.
func (t *Preferences) assign() {
	n := len(t.clusters)
	t.first = make([]gatewayPair, n*(n-1)/2)
	load, bound := make([][]int, n), make([]int, n)
	width := bits.Len(uint(n))
	pairs, degree := t.contestedPairs(width)
	for i, s := range t.clusters {
		load[i] = make([]int, len(s.gateways))
		bound[i] = shareBound(degree[i], len(s.gateways))
	}
	for _, key := range pairs {
		i, j := int(key>>width&(1<<width-1)), int(key&(1<<width-1))
		best, bestScore := gatewayPair{}, uint64(0)
		for x, hx := range t.clusters[i].hashes {
			if load[i][x] >= bound[i] {
				continue
			}
			for y, hy := range t.clusters[j].hashes {
				// bestScore 0 means that no link is selected yet, so a score is at
				// least 1.
				if score := linkScore(hx, hy) | 1; load[j][y] < bound[j] && score > bestScore {
					best, bestScore = gatewayPair{uint16(x), uint16(y)}, score
				}
			}
		}
		load[i][best.low]++
		load[j][best.high]++
		t.first[t.index(i, j)] = best
	}
}

// shareBound returns the maximum number of pairs of a cluster for one of its gateways. The sum of
// all bounds is at least the number of pairs, so each pair finds a gateway below its bound at both
// ends.
func shareBound(pairs, gateways int) int {
	part := 100 * gateways
	return (pairs*(100+headroomPercent) + part - 1) / part
}

// contestedPairs returns the linked pairs of clusters that have several links, in the order in
// which they choose, and the number of linked pairs of each cluster. Pairs with one link need no
// choice, and a single gateway never reaches its bound. The key of a pair has a part of its hash
// and the indexes of both clusters. Numbers sort several times faster than structures.
func (t *Preferences) contestedPairs(width int) (keys []uint64, degree []int) {
	n := len(t.clusters)
	mesh := t.graph.Mesh()
	low := uint64(1)<<(2*width) - 1
	hashes := make([]uint64, n)
	for i, s := range t.clusters {
		hashes[i] = stablehash.Mix64(stablehash.Sum64(s.cluster))
	}
	degree = make([]int, n)
	for i := range n {
		for j := i + 1; j < n; j++ {
			if !mesh && !t.graph.Linked(t.clusters[i].cluster, t.clusters[j].cluster) {
				continue
			}
			degree[i]++
			degree[j]++
			if len(t.clusters[i].gateways) == 1 && len(t.clusters[j].gateways) == 1 {
				continue
			}
			keys = append(keys, linkScore(hashes[i], hashes[j])&^low|uint64(i)<<width|uint64(j))
		}
	}
	slices.Sort(keys)
	return keys, degree
}

// linkScore combines two mixed hashes. The order of its arguments matters.
func linkScore(low, high uint64) uint64 {
	return stablehash.Mix64(low + bits.RotateLeft64(high, 32))
}

// index returns the index of the pair of clusters i < j in first.
func (t *Preferences) index(i, j int) int { return i*(2*len(t.clusters)-i-1)/2 + j - i - 1 }

// find returns the index of a cluster; -1 if it has no gateway or does not exist.
func (t *Preferences) find(cluster string) int {
	byName := func(c clusterGateways, name string) int {
		return strings.Compare(c.cluster, name)
	}
	i, found := slices.BinarySearchFunc(t.clusters, cluster, byName)
	if !found {
		return -1
	}
	return i
}

// First returns the first choice of a pair of clusters, as seen from local. It returns false if a
// cluster has no gateway or the clusters have no link.
func (t *Preferences) First(local, remote string) (model.Path, bool) {
	i, j := t.find(local), t.find(remote)
	if i < 0 || j < 0 || i == j || !t.graph.Linked(local, remote) {
		return model.Path{}, false
	}
	return t.firstOf(i, j), true
}

// firstOf returns the first choice of two linked clusters, as seen from cluster i.
func (t *Preferences) firstOf(i, j int) model.Path {
	l := t.first[t.index(min(i, j), max(i, j))]
	if i > j {
		l.low, l.high = l.high, l.low
	}
	local, remote := &t.clusters[i], &t.clusters[j]
	return model.Path{Local: local.gateways[l.low], Remote: remote.gateways[l.high]}
}

// Order returns all links of a pair of clusters, as seen from local. The first choice precedes the
// other links, which are sorted by score. Order returns nil if a cluster has no gateway or the
// clusters have no link.
func (t *Preferences) Order(local, remote string) []model.Path {
	first, ok := t.First(local, remote)
	if !ok {
		return nil
	}
	type scored struct {
		model.Path
		score uint64
	}
	from, to := &t.clusters[t.find(local)], &t.clusters[t.find(remote)]
	all := make([]scored, 0, len(from.gateways)*len(to.gateways))
	for x, hx := range from.hashes {
		for y, hy := range to.hashes {
			s := scored{Path: model.Path{Local: from.gateways[x], Remote: to.gateways[y]}}
			if s.score = linkScore(hx, hy); local > remote {
				s.score = linkScore(hy, hx)
			}
			if s.Path != first {
				all = append(all, s)
			}
		}
	}
	slices.SortFunc(all, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	order := append(make([]model.Path, 0, len(all)+1), first)
	for _, s := range all {
		order = append(order, s.Path)
	}
	return order
}

// links returns the number of links of two clusters.
func (t *Preferences) links(i, j int) int {
	return len(t.clusters[i].gateways) * len(t.clusters[j].gateways)
}
