package driver

import (
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

// vxlan is plain VXLAN (RFC 7348), for trusted underlays: it does not encrypt, and only the
// outer address identifies the sender.
type vxlan struct{}

// Traits returns the header sizes: IP, UDP, VXLAN, and Ethernet inside.
func (vxlan) Traits() Traits {
	return Traits{Name: fabric.DriverVXLAN, Overhead4: 20 + 8 + 8 + 14, Overhead6: 40 + 8 + 8 + 14, Unencrypted: true}
}

// Build adds an overlay between the endpoints.
func (vxlan) Build(site LocalGateway, remotes []Remote) Result {
	var b Result
	o := overlay{
		driver: fabric.DriverVXLAN, prefix: desired.VXLANDevicePrefix, vni: desired.TunnelVNI, clear: true,
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
