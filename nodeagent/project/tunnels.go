package project

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

// device is the tunnel device of this gateway for one key epoch and for the
// remote gateways of one lane. As a cluster has each lane once, a device holds at
// most one peer of each cluster, and that peer can hold the cluster's prefixes
// whether or not its link is the chosen one.
type device struct {
	epoch, lane int
	link        string
	keys        *fabric.EpochKeys
}

// epochOffset tells neighbouring epochs apart, as both devices listen while one
// epoch replaces the next.
func epochOffset(epoch int) int { return (epoch + 1) % 2 }

// portOffset is added to a gateway's port: there it listens for gateways of a
// lane in an epoch.
func portOffset(epoch, lane int) int { return 2*lane + epochOffset(epoch) }

func deviceName(epoch, lane int) string {
	name := desired.TunnelPrefix + strconv.Itoa(epoch)
	if lane > 0 {
		name += "-" + strconv.Itoa(lane)
	}
	return name
}

// addTunnels makes a device for each epoch and lane, with a peer for the gateway
// of that lane in each other cluster.
func (v *view) addTunnels() {
	if v.gateway == nil {
		return
	}
	v.checkMTU()
	offsets := map[int]int{}
	for _, epoch := range slices.Sorted(slices.Values(v.in.Fabric.Epochs)) {
		if other, taken := offsets[epochOffset(epoch)]; taken {
			v.problem("keys.epochs", EpochPort, "epochs "+strconv.Itoa(other)+" and "+strconv.Itoa(epoch)+
				" would listen on one port; only neighbouring epochs can be in force together")
			continue
		}
		if v.addDevices(epoch) {
			offsets[epochOffset(epoch)] = epoch
		}
	}
	for _, r := range v.remotes {
		v.checkLanes(r)
	}
	for _, d := range v.devices {
		for _, r := range v.remotes {
			for i := range r.Gateways {
				if g := &r.Gateways[i]; g.Lane == d.lane {
					v.addPeer(d, r, g)
				}
			}
		}
	}
}

// lanes gives those that some remote gateway has, ascending.
func (v *view) lanes() []int {
	var out []int
	for _, r := range v.remotes {
		for i := range r.Gateways {
			out = append(out, r.Gateways[i].Lane)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sharesLane reports whether another gateway of the cluster has the same lane,
// as in a fabric from before there were lanes.
func (r *remote) sharesLane(g *fabric.Gateway) bool {
	return slices.ContainsFunc(r.Gateways, func(o fabric.Gateway) bool { return o.Name != g.Name && o.Lane == g.Lane })
}

func (v *view) checkLanes(r *remote) {
	for i := range r.Gateways {
		if g := &r.Gateways[i]; r.sharesLane(g) {
			v.problem(clusterPath(r.Name)+".gateways["+g.Name+"]", LaneTwice, "lane "+strconv.Itoa(g.Lane)+
				" is another gateway's too, so moves between them lose packets; run hawser allocate")
		}
	}
}

func (v *view) checkMTU() {
	if fits := v.underlayMTU() - wireguardOver; v.in.Fabric.Tunnel.MTU > fits {
		v.problem("tunnel.mtu", MTUTooLarge, "the underlay of node "+v.in.Node+" carries at most "+strconv.Itoa(fits))
	}
}

func (v *view) gatewayPath() string {
	return clusterPath(v.own.Name) + ".gateways[" + v.gateway.Name + "]"
}

// addDevices reports whether there are devices of the epoch: without a private
// key there are none.
func (v *view) addDevices(epoch int) bool {
	origin := v.gatewayPath()
	var keys *fabric.EpochKeys
	if v.in.Keys != nil {
		keys = v.in.Keys.Epoch(epoch)
	}
	var private fabric.Secret
	found := false
	if keys != nil {
		private, found = keys.Gateways[v.gateway.Name]
	}
	if !found {
		v.problem(origin, KeyMissing, "no private key of epoch "+strconv.Itoa(epoch)+", so there is no tunnel")
		return false
	}
	for _, lane := range v.lanes() {
		d := device{epoch: epoch, lane: lane, link: deviceName(epoch, lane), keys: keys}
		v.devices = append(v.devices, d)
		v.addDevice(d, private)
	}
	return true
}

func (v *view) addDevice(d device, private fabric.Secret) {
	s, link, origin := &v.state, d.link, v.gatewayPath()
	s.Links = append(s.Links, desired.Link{
		Name: link, Type: desired.LinkWireguard, MTU: v.tunnelMTU(), Up: true, Origin: origin,
	})
	s.Wireguards = append(s.Wireguards, desired.Wireguard{
		Link: link, PrivateKey: private, ListenPort: v.gateway.Port + portOffset(d.epoch, d.lane), Origin: origin,
	})
	for _, a := range v.gateway.Addresses {
		s.Addresses = append(s.Addresses, desired.Address{Link: link, Prefix: single(a), Scope: "global", Origin: origin})
	}
	if v.v4 {
		s.Sysctls = append(s.Sysctls, desired.Sysctl{Name: "net/ipv4/conf/" + link + "/rp_filter", Value: "2", Origin: origin})
	}
}

func (v *view) addPeer(d device, r *remote, g *fabric.Gateway) {
	origin := clusterPath(r.Name) + ".gateways[" + g.Name + "]"
	public := publicKey(g, d.epoch)
	if public == "" {
		v.problem(origin, PeerKeyMissing, "no public key of epoch "+strconv.Itoa(d.epoch))
		return
	}
	psk, err := d.keys.PSK(v.own.Name+"/"+v.gateway.Name, r.Name+"/"+g.Name)
	if err != nil {
		v.problem(origin, PeerKeyMissing, err.Error())
		return
	}
	var allowed []netip.Prefix
	for _, a := range g.Addresses {
		allowed = append(allowed, single(a))
	}
	if !r.sharesLane(g) || v.carries(r) && r.path.Remote == g.Name {
		allowed = append(allowed, r.visible...)
	}
	slices.SortFunc(allowed, netip.Prefix.Compare)
	v.state.Peers = append(v.state.Peers, desired.Peer{
		Link: d.link, PublicKey: public, PSK: psk, Endpoint: v.endpoint(g, d.epoch), AllowedIPs: slices.Compact(allowed),
		Keepalive: int(time.Duration(v.in.Fabric.Tunnel.Keepalive) / time.Second), Origin: origin,
	})
}

// carries reports whether this node is the gateway of the link to r.
func (v *view) carries(r *remote) bool {
	return r.reachable && v.gateway != nil && v.gateway.Name == r.path.Local
}

// deviceFor finds the device over which a remote gateway is reached: the one of
// the oldest epoch that both ends have, as a new epoch may not have come to
// every gateway yet.
func (v *view) deviceFor(g *fabric.Gateway) (string, bool) {
	for _, d := range v.devices {
		if d.lane == g.Lane && publicKey(g, d.epoch) != "" {
			return d.link, true
		}
	}
	return "", false
}

func publicKey(g *fabric.Gateway, epoch int) string {
	i := slices.IndexFunc(g.Keys, func(k fabric.Key) bool { return k.Epoch == epoch })
	if i < 0 {
		return ""
	}
	return g.Keys[i].Public
}

// endpoint gives the first usable endpoint in order of preference: an address
// as it is, a name once it is resolved; with the port where the gateway listens
// for this one's lane. Invalid = the gateway dials in.
func (v *view) endpoint(g *fabric.Gateway, epoch int) netip.AddrPort {
	for _, text := range g.Endpoints {
		candidates := v.in.Local.Resolved[text]
		if !strings.HasPrefix(text, "dns:") {
			addr, err := netip.ParseAddr(text)
			if err != nil {
				continue
			}
			candidates = []netip.Addr{addr}
		}
		for _, addr := range candidates {
			if v.canSendTo(addr) {
				return netip.AddrPortFrom(addr, uint16(g.Port+portOffset(epoch, v.gateway.Lane)))
			}
		}
	}
	return netip.AddrPort{}
}

// canSendTo reports whether this node has an address of the family; while its
// addresses are not known, any will do.
func (v *view) canSendTo(addr netip.Addr) bool {
	if v.node == nil {
		return true
	}
	_, ok := ofFamily(v.node.Addrs, family(addr))
	return ok
}
