package fabric

// TransitPairs returns, for each cluster with transit traffic, the number of pairs of other
// clusters whose path leads through it while all links are up. Except for a mesh, the cost
// grows with the square of the number of clusters.
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
		for to, path := range g.Paths(from, nil) {
			if from < to {
				for _, via := range path[:len(path)-1] {
					out[via]++
				}
			}
		}
	}
	return out
}

// transitByHub selects the hub of each pair of spokes, like Paths.
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
