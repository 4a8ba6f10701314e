package driver

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// overlay is VXLAN between the outer addresses of gateways. It adds a device, next hops, source
// checks and counters to tunnels that only transport IP packets between two addresses. One
// device receives on one port of one family. Each remote gateway is one forwarding entry with
// its own address and port.
type overlay struct {
	driver string
	prefix string // of the devices' names; family digit and port follow
	vni    int
	clear  bool
	// port returns the UDP port of VXLAN for a link's base port.
	port func(base int, alt bool) int
}

// overlayPeer is a remote gateway with its outer addresses in an overlay.
type overlayPeer struct {
	*Remote
	to   netip.Addr   // invalid if unknown
	from []netip.Addr // permitted outer sources
	base int          // base of its ports
}

// overlayDevice is one device of an overlay.
type overlayDevice struct {
	six  bool
	port int
}

func (o *overlay) name(d overlayDevice) string {
	family := "4-"
	if d.six {
		family = "6-"
	}
	return o.prefix + family + strconv.Itoa(d.port)
}

// build adds the devices, and the next hops and forwarding entries to the remotes.
func (o *overlay) build(b *Result, site *LocalGateway, remotes []overlayPeer) {
	devices := map[overlayDevice]int{} // device to MTU
	for i := range remotes {
		r := &remotes[i]
		if !r.to.IsValid() {
			b.problem(r.path(), status.NoEndpoint, "a tunnel of driver "+o.driver+" needs its address, and none is known")
			continue
		}
		port := o.port(r.LocalBasePort, r.Alternate)
		for _, a := range append([]netip.Addr{r.to}, r.from...) {
			d := overlayDevice{a.Is6(), port}
			devices[d] = max(devices[d], r.MTU)
		}
		o.remote(b, site, r, overlayDevice{r.to.Is6(), port})
	}
	names := make(map[string]overlayDevice, len(devices))
	for d := range devices {
		names[o.name(d)] = d
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		// The route to each remote gateway selects the source address.
		d := names[name]
		local := netip.IPv4Unspecified()
		family := 4
		if d.six {
			local, family = netip.IPv6Unspecified(), 6
		}
		b.device(site, desired.Device{
			Name: o.name(d), Type: desired.DeviceVXLAN, MTU: devices[d], MAC: OverlayMAC(site.Cluster, site.Gateway.Name),
			VNI: o.vni, Port: d.port, Local: local,
		}, desired.RuleTunnel)
		e := desired.Element{Set: desired.SetOverlays, Family: family, ID: strconv.Itoa(d.port), Origin: site.path()}
		if !slices.Contains(b.Elements, e) {
			b.Elements = append(b.Elements, e)
		}
	}
}

// OverlayMAC returns a gateway's MAC address on overlays between gateways.
func OverlayMAC(cluster, gateway string) string {
	return desired.HardwareAddr("gateway/" + cluster + "/" + gateway)
}

// remote adds the path to a remote gateway: next hops of both families with its MAC address, and
// the forwarding entry from that MAC address to its outer address.
func (o *overlay) remote(b *Result, site *LocalGateway, r *overlayPeer, d overlayDevice) {
	link, mac, origin := o.name(d), OverlayMAC(r.Cluster, r.Gateway.Name), r.path()
	c := desired.Tunnel{
		Cluster: r.Cluster, Gateway: r.Gateway.Name, Preference: r.Preference, Driver: o.driver, Epoch: r.Epoch, Alternate: r.Alternate, Port: d.port, Device: link,
		MTU: r.MTU, Clear: o.clear, Endpoint: netip.AddrPortFrom(r.to, uint16(o.port(r.base, r.Alternate))),
	}
	hops := slices.Clone(r.Gateway.Addresses)
	for _, a := range hops {
		if a.Is4() && !c.Via4.IsValid() {
			c.Via4 = a
		}
	}
	if site.V6 {
		c.Via6 = desired.LinkLocal(mac)
		hops = append(hops, c.Via6)
	}
	if site.V4 && !c.Via4.IsValid() {
		b.problem(origin, status.FamilyMissing, "it has no IPv4 address inside the tunnels, so IPv4 has no next hop")
	}
	for _, a := range hops {
		b.Neighbors = append(b.Neighbors, desired.Neighbor{Device: link, Addr: a, MAC: mac, Origin: origin})
	}
	b.Forwards = append(b.Forwards, desired.Forward{Device: link, MAC: mac, To: c.Endpoint, Origin: origin})
	c.Sent = o.count(b, desired.Element{
		Set: desired.SetSent, Family: fabric.Family(r.to), ID: r.to.String() + " . " + strconv.Itoa(int(c.Endpoint.Port())), Origin: origin,
	})
	c.Received = o.admit(b, r, d.port)
	b.Tunnels = append(b.Tunnels, c)
}

// admit accepts packets from the remote gateway's addresses with an inner source of its cluster. It
// returns the keys of the set elements.
func (o *overlay) admit(b *Result, r *overlayPeer, port int) []string {
	var keys []string
	from := append([]netip.Addr{r.to}, r.from...)
	slices.SortFunc(from, netip.Addr.Compare)
	for _, a := range slices.Compact(from) {
		for _, p := range r.ownPrefixes() {
			set := desired.SetSources4In
			if p.Addr().Is6() {
				set = desired.SetSources6In
			}
			keys = append(keys, o.count(b, desired.Element{
				Set: set, Family: fabric.Family(a), ID: a.String() + " . " + strconv.Itoa(port) + " . " + cidr.Format(p), Origin: r.path(),
			})...)
		}
	}
	return keys
}

// count adds an element and returns its key, which identifies its counter.
func (o *overlay) count(b *Result, e desired.Element) []string {
	b.Elements = append(b.Elements, e)
	return []string{e.Key()}
}
