package driver

import (
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

// vxlan is plain VXLAN (RFC 7348), for underlays that are trusted: nothing is
// encrypted, and what tells who sends is the outer address.
type vxlan struct{}

// Traits gives the sizes of the headers: IP, UDP, VXLAN, and Ethernet inside.
func (vxlan) Traits() Traits {
	return Traits{Name: fabric.DriverVXLAN, Overhead4: 20 + 8 + 8 + 14, Overhead6: 40 + 8 + 8 + 14, Unencrypted: true}
}

// Build makes an overlay between the endpoints themselves.
func (vxlan) Build(site LocalGateway, remotes []Remote) Result {
	var b Result
	o := overlay{
		driver: fabric.DriverVXLAN, prefix: desired.VXLANPrefix, vni: desired.VXLANTunnelID, clear: true,
		port: fabric.VXLANPort,
	}
	all := make([]overlayPeer, len(remotes))
	for i := range remotes {
		r := &remotes[i]
		all[i] = overlayPeer{Remote: r, to: r.Addr, from: r.Addrs, base: r.RemoteBasePort}
	}
	o.build(&b, &site, all)
	return b
}
