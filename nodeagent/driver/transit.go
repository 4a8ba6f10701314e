package driver

import (
	"net/netip"

	"hawser.dev/hawser/nodeagent/desired"
)

// Transit builds the devices for transit traffic: an overlay between the tunnel addresses of
// gateways, inside the tunnels of any driver. Remote.Prefixes are the sources that a remote gateway
// may send; they may belong to any cluster. A tunnel itself accepts only packets of the two
// clusters that it connects.
func Transit(site LocalGateway, remotes []Remote) Result {
	var b Result
	o := overlay{
		driver: "transit", prefix: desired.TransitDevicePrefix, vni: desired.TransitVNI,
		port: func(int, bool) int { return desired.TransitPort },
	}
	var all []overlayPeer
	for i := range remotes {
		r := &remotes[i]
		to, ok := firstCommonAddr(site.Gateway.Addresses, r.Gateway.Addresses)
		if !ok {
			continue
		}
		all = append(all, overlayPeer{Remote: r, to: to, from: r.Gateway.Addresses})
	}
	o.build(&b, &site, all)
	return b
}

// TransitOverhead returns the bytes that transit adds to a packet on a tunnel between gateways
// with these tunnel addresses: IP, UDP, VXLAN and Ethernet.
func TransitOverhead(own, remote []netip.Addr) int {
	if to, ok := firstCommonAddr(own, remote); ok && to.Is6() {
		return 40 + 8 + 8 + 14
	}
	return 20 + 8 + 8 + 14
}

// firstCommonAddr returns the first address of a remote gateway in a family of this gateway.
func firstCommonAddr(own, remote []netip.Addr) (netip.Addr, bool) {
	for _, a := range own {
		for _, b := range remote {
			if a.Is4() == b.Is4() {
				return b, true
			}
		}
	}
	return netip.Addr{}, false
}
