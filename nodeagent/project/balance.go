package project

import (
	"slices"

	"hawser.dev/hawser/schema/fabric"
)

// share is a cluster that takes part in an export and its weight.
type share struct {
	cluster string
	weight  int
}

// choose applies a policy to the clusters that are ready, which are sorted by
// name. A cluster that weights or order do not name is the last resort, while no
// named one is ready: an export that is ready somewhere is never refused.
func choose(b fabric.Balance, own string, ready []string) []share {
	if len(ready) == 0 {
		return nil
	}
	switch b.Policy {
	case fabric.LocalFirst:
		if slices.Contains(ready, own) {
			return []share{{own, 1}}
		}
	case fabric.Failover:
		for _, name := range b.Order {
			if slices.Contains(ready, name) {
				return []share{{name, 1}}
			}
		}
		return []share{{ready[0], 1}}
	case fabric.Weighted:
		if shares := weighted(b.Weights, ready); len(shares) > 0 {
			return shares
		}
	}
	shares := make([]share, len(ready))
	for i, name := range ready {
		shares[i] = share{name, 1}
	}
	return shares
}

// weighted gives the named clusters that are ready.
func weighted(weights map[string]int, ready []string) []share {
	var shares []share
	for _, name := range ready {
		if weight, named := weights[name]; named {
			shares = append(shares, share{name, max(weight, 1)})
		}
	}
	return shares
}
