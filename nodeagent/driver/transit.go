package driver

import (
	"net/netip"

	"hawser.dev/hawser/nodeagent/desired"
)

// Transit makes what carries packets that clusters pass on to each other: an
// overlay between the tunnel addresses of gateways, inside the tunnels of whatever
// driver. What a remote may send is told by its Prefixes, which belong to any
// cluster; a tunnel itself carries the packets of the two clusters that it joins
// and of nobody else.
func Transit(site Site, remotes []Remote) Built {
	var b Built
	o := overlay{
		driver: "passing", prefix: desired.PassPrefix, vni: desired.PassID,
		port: func(int, bool) int { return desired.PassPort },
	}
	var all []outer
	for i := range remotes {
		r := &remotes[i]
		to, ok := facing(site.Gateway.Addresses, r.Gateway.Addresses)
		if !ok {
			continue
		}
		all = append(all, outer{Remote: r, to: to, from: r.Gateway.Addresses})
	}
	o.build(&b, &site, all)
	return b
}

// TransitOver is what passing a packet on adds to it on a tunnel between gateways
// with these tunnel addresses, in bytes: IP, UDP, VXLAN and Ethernet.
func TransitOver(own, remote []netip.Addr) int {
	if to, ok := facing(own, remote); ok && to.Is6() {
		return 40 + 8 + 8 + 14
	}
	return 20 + 8 + 8 + 14
}

// facing finds the first address of a remote gateway whose family this one has.
func facing(own, remote []netip.Addr) (netip.Addr, bool) {
	for _, a := range own {
		for _, b := range remote {
			if a.Is4() == b.Is4() {
				return b, true
			}
		}
	}
	return netip.Addr{}, false
}
