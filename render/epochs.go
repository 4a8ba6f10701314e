package render

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
)

// checkEpochs returns an error if no epoch of the topology is published. Otherwise every tunnel
// would be down until both ends have the new keys.
func checkEpochs(top *schema.ClusterSet, previous *fabric.Fabric) diag.List {
	if previous == nil || previous.Name != top.Metadata.Name || len(previous.Clusters) < 2 || len(previous.Epochs) == 0 {
		return nil
	}
	want := top.Spec.Keys.Epochs
	if slices.ContainsFunc(want, func(e int) bool { return slices.Contains(previous.Epochs, e) }) {
		return nil
	}
	last := previous.Epochs[len(previous.Epochs)-1]
	return diag.List{{Severity: diag.Error, Code: "epoch-break", Path: "keys.epochs",
		Summary: fmt.Sprintf("%s contains no published epoch (%s): every tunnel would be down until both its ends know the new keys",
			epochList(want), epochList(previous.Epochs)),
		Hint: fmt.Sprintf("publish %s first, and drop %d when no link uses it", epochList([]int{last, last + 1}), last)}}
}

func epochList(epochs []int) string {
	return "[" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(epochs)), ", "), "[]") + "]"
}

// checkAlternateAddrs returns an error if a gateway's alternate address is another gateway's tunnel
// address. IPsec uses alternate addresses in even epochs.
func checkAlternateAddrs(f *fabric.Fabric) diag.List {
	even := slices.IndexFunc(f.Epochs, func(e int) bool { return e%2 == 0 })
	if even < 0 {
		return nil
	}
	owner := map[netip.Addr]string{}
	for i := range f.Clusters {
		for _, g := range f.Clusters[i].Gateways {
			for _, a := range g.Addresses {
				owner[a] = f.Clusters[i].Name + "/" + g.Name
			}
		}
	}
	for i := range f.Clusters {
		c := &f.Clusters[i]
		if !slices.Contains(f.Drivers(c.Name), fabric.DriverIPsec) {
			continue
		}
		for _, g := range c.Gateways {
			for _, a := range g.Addresses {
				if other, taken := owner[fabric.AlternateAddr(f.TunnelPools, a)]; taken {
					return diag.List{{Severity: diag.Error, Code: "pool-exhausted", Path: "tunnel.cidr",
						Summary: fmt.Sprintf("IPsec needs a second address of each gateway for epoch %d, and the second address of %s/%s belongs to %s",
							f.Epochs[even], c.Name, g.Name, other),
						Hint: "make the pool larger"}}
				}
			}
		}
	}
	return nil
}
