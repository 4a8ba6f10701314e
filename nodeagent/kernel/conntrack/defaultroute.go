package conntrack

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// newRoutes are the destinations of routes that this node did not have before.
type newRoutes struct {
	prefixes      []netip.Prefix // of other clusters
	clusterSetIPs []netip.Prefix // pools of clusterset IPs
}

func (n newRoutes) empty() bool { return len(n.prefixes) == 0 && len(n.clusterSetIPs) == 0 }

// deleteDefaultRouted deletes the entries of flows to other clusters that left by the default
// route, because this node had no routes to these clusters yet, such as after a boot. It returns
// the number of deleted entries.
//
// The kernel applies NAT rules only to the first packet of a flow. So such a flow would keep the
// masquerading of another program instead of Hawser's translations. Each packet of the client
// would extend the life of the entry. If a server's reply created the entry, the entry would also
// occupy the addresses and ports that the client's packets need. After the deletion, the next
// packet of the flow creates a correct entry.
func deleteDefaultRouted(ctx context.Context, added newRoutes) (int, error) {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return 0, fmt.Errorf("list addresses: %w", err)
	}
	local := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			local[addr.Unmap()] = true
		}
	}
	prefixes, clusterSetIPs := newPrefixTable(), newPrefixTable()
	prefixes.add("", added.prefixes)
	clusterSetIPs.add("", added.clusterSetIPs)
	var found []Flow
	err = listFlows(ctx, func(f *Flow) {
		_, remote := prefixes.find(f.Reply.From.Addr())
		_, clusterSetIP := clusterSetIPs.find(f.Reply.From.Addr())
		// Hawser translates the source to an egress address, which no host has, and a
		// clusterset IP to a backend.
		masqueraded := !f.keepsSource() && local[f.Reply.To.Addr()]
		if clusterSetIP || remote && masqueraded {
			found = append(found, *f)
		}
	})
	if err != nil {
		return 0, err
	}
	return deleteEntries(ctx, found)
}
