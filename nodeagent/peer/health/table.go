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

// Preferences has the order of the links of each pair of clusters. The order depends only on the names
// of clusters and gateways, so all nodes of both clusters compute the same one. No gateway has more
// first choices than its fair share plus a quarter, rounded up. Preferences is immutable.
type Preferences struct {
	names []string // of clusters and gateways in the fabric, for Same
	net   projection.Topology
	sides []side // by cluster
	first []link // of each pair of sides, see index
}

// side is a cluster and its gateways, by name.
type side struct {
	cluster  string
	gateways []string
	hashes   []uint64 // of cluster/gateway, mixed
}

// link is a pair of gateways: of the cluster with the lower name, and of the other.
type link struct{ low, high uint16 }

// headroom is the percentage by which a gateway may exceed its fair share. With more headroom, more
// pairs use their best link, and fewer move when a cluster is added or removed. With less headroom,
// shares are more equal.
const headroom = 25

// NewTable computes the preferences of a fabric. before is the former shape of its clusters, or nil.
// The cost grows with the square of the number of clusters: keep the result while Same is true.
func NewTable(f *fabric.Fabric, before *fabric.Shape) *Preferences {
	t := &Preferences{names: appendNames(nil, f), net: projection.NewNet(f, before)}
	for i := range f.Clusters {
		if len(f.Clusters[i].Gateways) > 0 {
			t.sides = append(t.sides, newSide(&f.Clusters[i]))
		}
	}
	slices.SortFunc(t.sides, func(a, b side) int { return strings.Compare(a.cluster, b.cluster) })
	t.assign()
	return t
}

// Net returns the topology of the preferences.
func (t *Preferences) Net() projection.Topology { return t.net }

func newSide(c *fabric.Cluster) side {
	s := side{cluster: c.Name}
	for _, g := range c.Gateways {
		s.gateways = append(s.gateways, g.Name)
	}
	slices.Sort(s.gateways)
	for _, g := range s.gateways {
		s.hashes = append(s.hashes, stablehash.Mix64(stablehash.Sum64(c.Name+"/"+g)))
	}
	return s
}

// appendNames lists the names that the preferences depend on. Each cluster ends with an empty text,
// which is no DNS label.
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

// Same reports whether NewTable would return equal preferences. It is cheap.
func (t *Preferences) Same(f *fabric.Fabric, before *fabric.Shape) bool {
	if !t.net.Same(f, before) {
		return false
	}
	rest := t.names
	next := func(name string) bool {
		if len(rest) == 0 || rest[0] != name {
			return false
		}
		rest = rest[1:]
		return true
	}
	for i := range f.Clusters {
		if !next(f.Clusters[i].Name) {
			return false
		}
		for _, g := range f.Clusters[i].Gateways {
			if !next(g.Name) {
				return false
			}
		}
		if !next("") {
			return false
		}
	}
	return len(rest) == 0
}

// assign sets the first choice of each pair of clusters: the link with the highest score whose
// gateways are both below their bound. The order of pairs depends only on their own names, so an
// added cluster affects only the pairs that its own pairs displace.
func (t *Preferences) assign() {
	n := len(t.sides)
	t.first = make([]link, n*(n-1)/2)
	load, bound := make([][]int, n), make([]int, n)
	width := bits.Len(uint(n))
	pairs, degree := t.contestedPairs(width)
	for i, s := range t.sides {
		load[i] = make([]int, len(s.gateways))
		bound[i] = shareBound(degree[i], len(s.gateways))
	}
	for _, key := range pairs {
		i, j := int(key>>width&(1<<width-1)), int(key&(1<<width-1))
		best, top := link{}, uint64(0)
		for x, hx := range t.sides[i].hashes {
			if load[i][x] >= bound[i] {
				continue
			}
			for y, hy := range t.sides[j].hashes {
				// A score of 0 means unset, so a score has at least one bit.
				if score := scoreOf(hx, hy) | 1; load[j][y] < bound[j] && score > top {
					best, top = link{uint16(x), uint16(y)}, score
				}
			}
		}
		load[i][best.low]++
		load[j][best.high]++
		t.first[t.index(i, j)] = best
	}
}

// shareBound returns the number of pairs of a cluster that one of its gateways may have. The sum of all
// bounds is at least the number of pairs, so each pair finds a gateway below its bound at both ends.
func shareBound(pairs, gateways int) int {
	part := 100 * gateways
	return (pairs*(100+headroom) + part - 1) / part
}

// contestedPairs returns the linked pairs of sides that have several links, in the order in which they
// choose, and the number of all linked pairs per side. The only link of a pair is its first choice, and
// a single gateway never reaches its bound. The key of a pair is a part of its hash and the indexes of
// both sides: numbers sort several times faster than structures.
func (t *Preferences) contestedPairs(width int) (keys []uint64, degree []int) {
	n := len(t.sides)
	mesh := t.net.Mesh()
	low := uint64(1)<<(2*width) - 1
	hashes := make([]uint64, n)
	for i, s := range t.sides {
		hashes[i] = stablehash.Mix64(stablehash.Sum64(s.cluster))
	}
	degree = make([]int, n)
	for i := range n {
		for j := i + 1; j < n; j++ {
			if !mesh && !t.net.Linked(t.sides[i].cluster, t.sides[j].cluster) {
				continue
			}
			degree[i]++
			degree[j]++
			if len(t.sides[i].gateways) == 1 && len(t.sides[j].gateways) == 1 {
				continue
			}
			keys = append(keys, scoreOf(hashes[i], hashes[j])&^low|uint64(i)<<width|uint64(j))
		}
	}
	slices.Sort(keys)
	return keys, degree
}

// scoreOf combines two mixed hashes. The order of its arguments matters.
func scoreOf(low, high uint64) uint64 { return stablehash.Mix64(low + bits.RotateLeft64(high, 32)) }

// index returns the index of the pair of sides i < j in first.
func (t *Preferences) index(i, j int) int { return i*(2*len(t.sides)-i-1)/2 + j - i - 1 }

// find returns the index of a cluster; -1 if it has no gateway or does not exist.
func (t *Preferences) find(cluster string) int {
	i, found := slices.BinarySearchFunc(t.sides, cluster, func(s side, name string) int {
		return strings.Compare(s.cluster, name)
	})
	if !found {
		return -1
	}
	return i
}

// First returns the first choice of a pair, as seen from local. ok is false if a side has no gateway or
// the two have no link.
func (t *Preferences) First(local, remote string) (model.Path, bool) {
	i, j := t.find(local), t.find(remote)
	if i < 0 || j < 0 || i == j || !t.net.Linked(local, remote) {
		return model.Path{}, false
	}
	return t.firstOf(i, j), true
}

// firstOf returns the first choice of two linked sides, as seen from side i.
func (t *Preferences) firstOf(i, j int) model.Path {
	l := t.first[t.index(min(i, j), max(i, j))]
	if i > j {
		l.low, l.high = l.high, l.low
	}
	return model.Path{Local: t.sides[i].gateways[l.low], Remote: t.sides[j].gateways[l.high]}
}

// Order returns all links of a pair of clusters, as seen from local: the first choice, then the others
// by score. It is nil if a side has no gateway.
func (t *Preferences) Order(local, remote string) []model.Path {
	first, ok := t.First(local, remote)
	if !ok {
		return nil
	}
	type scored struct {
		model.Path
		score uint64
	}
	here, there := &t.sides[t.find(local)], &t.sides[t.find(remote)]
	all := make([]scored, 0, len(here.gateways)*len(there.gateways))
	for x, hx := range here.hashes {
		for y, hy := range there.hashes {
			s := scored{Path: model.Path{Local: here.gateways[x], Remote: there.gateways[y]}}
			if s.score = scoreOf(hx, hy); local > remote {
				s.score = scoreOf(hy, hx)
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

// links returns the number of links of two sides.
func (t *Preferences) links(i, j int) int { return len(t.sides[i].gateways) * len(t.sides[j].gateways) }
