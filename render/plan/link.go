package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/schema/fabric"
)

// maxLinks is the maximum number of links that the plan lists one by one. The number of links of a
// new clusterset is quadratic in its gateways.
const maxLinks = 64

// addNewLinks adds the links of gateways that are added or removed. It skips links between gateways
// that exist on both sides, because they do not change.
func addNewLinks(want, have *snapshot) {
	w, h := gateways(want.fabric), gateways(have.fabric)
	addLinks(want, w, h)
	addLinks(have, h, w)
}

// gatewayEnd is a gateway, as cluster/gateway.
type gatewayEnd struct {
	cluster, gateway string
}

func (e gatewayEnd) String() string { return e.cluster + "/" + e.gateway }

func gateways(f *fabric.Fabric) (out []gatewayEnd) {
	for i := range f.Clusters {
		for j := range f.Clusters[i].Gateways {
			out = append(out, gatewayEnd{f.Clusters[i].Name, f.Clusters[i].Gateways[j].Name})
		}
	}
	return out
}

// addLinks adds to s the links of the gateways in ends that otherEnds lacks.
func addLinks(s *snapshot, ends, otherEnds []gatewayEnd) {
	known, perCluster := map[gatewayEnd]bool{}, map[string]int{}
	for _, e := range otherEnds {
		known[e] = true
	}
	for _, e := range ends {
		perCluster[e.cluster]++
	}
	added := slices.DeleteFunc(slices.Clone(ends), func(e gatewayEnd) bool { return known[e] })
	if len(added) == 0 {
		return
	}
	graph, total, counts := s.fabric.Graph(), 0, map[string]int{}
	for _, e := range added {
		if _, counted := counts[e.cluster]; !counted {
			for _, name := range graph.Neighbors(e.cluster) {
				counts[e.cluster] += perCluster[name]
			}
		}
		total += counts[e.cluster]
	}
	seen := map[string]bool{}
	for _, e := range added {
		link := item{kind: kindLink, cluster: e.cluster, path: fmt.Sprintf("clusters[%s].gateways[%s]", e.cluster, e.gateway)}
		if total > maxLinks*2 {
			link.name = e.String() + " to all"
			link.fields = []diff.Field{field("driver", strings.Join(s.fabric.Drivers(e.cluster), ", ")),
				field("links", strconv.Itoa(counts[e.cluster]))}
			s.items = append(s.items, link)
			continue
		}
		for _, o := range ends {
			if !graph.Linked(e.cluster, o.cluster) {
				continue
			}
			a, b := e, o
			if b.cluster < a.cluster {
				a, b = b, a
			}
			if link.name = a.String() + " - " + b.String(); !seen[link.name] {
				seen[link.name] = true
				link.fields = []diff.Field{field("driver", s.fabric.Link(e.cluster, o.cluster).Driver)}
				s.items = append(s.items, link)
			}
		}
	}
}
