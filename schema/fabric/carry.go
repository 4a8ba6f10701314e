package fabric

// TransitPairs counts, for each cluster that passes something on, the pairs of other clusters
// whose way leads through it when all links are alive. Its cost grows with the square of
// the number of clusters where it is no mesh.
func (g *Graph) TransitPairs() map[string]int {
	switch g.shape.Mode {
	case ModeHub:
		return g.transitByHub()
	case ModeExplicit:
	default:
		return map[string]int{}
	}
	out := map[string]int{}
	for _, from := range g.names {
		for to, way := range g.Paths(from, nil) {
			if from < to {
				for _, via := range way[:len(way)-1] {
					out[via]++
				}
			}
		}
	}
	return out
}

// transitByHub finds for each pair of spokes the hub of its way, as Ways does.
func (g *Graph) transitByHub() map[string]int {
	out := map[string]int{}
	var hubs, spokes []int
	for i := range g.names {
		if g.hubs[i] {
			hubs = append(hubs, i)
		} else {
			spokes = append(spokes, i)
		}
	}
	if len(hubs) == 0 {
		return out
	}
	sums := make([][]uint64, len(spokes))
	for i, s := range spokes {
		sums[i] = make([]uint64, len(hubs))
		for k, h := range hubs {
			sums[i][k] = LinkHash(g.names[s], g.names[h])
		}
	}
	counts := make([]int, len(hubs))
	for i := range spokes {
		for j := i + 1; j < len(spokes); j++ {
			best := 0
			for k := 1; k < len(hubs); k++ {
				if sums[i][k]+sums[j][k] < sums[i][best]+sums[j][best] {
					best = k
				}
			}
			counts[best]++
		}
	}
	for k, h := range hubs {
		if counts[k] > 0 {
			out[g.names[h]] = counts[k]
		}
	}
	return out
}
