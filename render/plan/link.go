package plan

import (
	"fmt"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/schema/fabric"
)

// maxLinks is how many links the plan lists one by one. A clusterset that is new
// as a whole has as many as the square of its gateways.
const maxLinks = 64

// links adds the links between pairs of gateways that appear or go with one of
// their ends. Links between gateways that exist on both sides do not change and
// are never looked at.
func links(want, have *side) {
	wantAt, haveAt := gateways(want.fabric), gateways(have.fabric)
	add(want, haveAt)
	add(have, wantAt)
}

type end struct {
	cluster, gateway string
}

func gateways(f *fabric.Fabric) map[end]bool {
	out := map[end]bool{}
	for i := range f.Clusters {
		for j := range f.Clusters[i].Gateways {
			out[end{f.Clusters[i].Name, f.Clusters[i].Gateways[j].Name}] = true
		}
	}
	return out
}

// add lists the links of this side's gateways that the other side lacks.
func add(s *side, there map[end]bool) {
	var fresh []end
	forEachGateway(s.fabric, func(e end) {
		if !there[e] {
			fresh = append(fresh, e)
		}
	})
	if len(fresh) == 0 {
		return
	}
	graph, total, own, counts := s.fabric.Graph(), 0, map[string]int{}, map[string]int{}
	forEachGateway(s.fabric, func(e end) { own[e.cluster]++ })
	for _, e := range fresh {
		if _, known := counts[e.cluster]; !known {
			for _, name := range graph.Neighbours(e.cluster) {
				counts[e.cluster] += own[name]
			}
		}
		total += counts[e.cluster]
	}
	if total > maxLinks*2 {
		for _, e := range fresh {
			s.items = append(s.items, linkCount(s.fabric, e, counts[e.cluster]))
		}
		return
	}
	seen := map[string]bool{}
	for _, e := range fresh {
		forEachGateway(s.fabric, func(o end) {
			if !graph.Linked(e.cluster, o.cluster) {
				return
			}
			if it := linkItem(e, o, s.fabric.Link(e.cluster, o.cluster).Driver); !seen[it.name] {
				seen[it.name] = true
				s.items = append(s.items, it)
			}
		})
	}
}

func forEachGateway(f *fabric.Fabric, do func(end)) {
	for i := range f.Clusters {
		for j := range f.Clusters[i].Gateways {
			do(end{f.Clusters[i].Name, f.Clusters[i].Gateways[j].Name})
		}
	}
}

// linkItem is the link of a new or leaving gateway e with another.
func linkItem(e, o end, driver string) item {
	a, b := e, o
	if b.cluster < a.cluster {
		a, b = b, a
	}
	return item{kind: kindLink, name: fmt.Sprintf("%s/%s - %s/%s", a.cluster, a.gateway, b.cluster, b.gateway), cluster: e.cluster,
		path: fmt.Sprintf("clusters[%s].gateways[%s]", e.cluster, e.gateway), fields: []diff.Field{field("driver", driver)}}
}

// linkCount tells how many links a gateway gets or loses.
func linkCount(f *fabric.Fabric, e end, n int) item {
	return item{kind: kindLink, name: fmt.Sprintf("%s/%s to all", e.cluster, e.gateway), cluster: e.cluster,
		path:   fmt.Sprintf("clusters[%s].gateways[%s]", e.cluster, e.gateway),
		fields: []diff.Field{field("driver", strings.Join(f.Drivers(e.cluster), ", ")), field("links", strconv.Itoa(n))}}
}
