package driver

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// ipsec is VXLAN between the gateways' tunnel addresses, encrypted with ESP. The ESP policies
// select packets by the UDP port of that VXLAN. Next hops, source checks and counters are the same
// as for driver vxlan, whether the kernel or a daemon encrypts. One daemon serves all links; a
// change to one link affects its connection only.
//
// During a rotation, two connections of neighbouring epochs exist to one gateway. Connections of
// even epochs use alternate tunnel addresses, because a daemon that encrypts in userspace
// distinguishes connections by address only. An alternate connection uses the addresses of the
// other parity.
type ipsec struct{}

// espOver is the number of bytes of ESP in UDP in tunnel mode, with AES-GCM or ChaCha20-Poly1305
// (RFC 4303, 3948, 4106, 7634): UDP 8, SPI and sequence number 8, IV 8, padding of at most 3, pad
// length and next header 2, integrity check value 16.
const espOver = 8 + 8 + 8 + 3 + 2 + 16

// maxUserspace is the largest inner packet if charon itself encrypts: its device accepts at most
// 1400 bytes (TUN_DEFAULT_MTU of its kernel-libipsec). A packet of 1399 bytes has exactly the
// padding that espOver counts, so the overhead is exact.
const maxUserspace = 1400 - vxlanOver4 - 1

// vxlanOver4 is the overhead of VXLAN between IPv4 tunnel addresses, which innerPair prefers.
const vxlanOver4 = 20 + 8 + 8 + 14

// Traits returns the header sizes of ESP and of the VXLAN inside.
func (ipsec) Traits() Traits {
	return Traits{
		Name: fabric.DriverIPsec, Overhead4: 20 + espOver + vxlanOver4, Overhead6: 40 + espOver + vxlanOver4,
		InnerIPv6: 20, Userspace: maxUserspace, FixedPorts: true, Keys: Ed25519,
	}
}

// Build returns the ESP device, a connection to each remote gateway, and the overlays inside
// the connections.
func (ipsec) Build(site LocalGateway, remotes []Remote) Result {
	var b Result
	var all [2][]overlayPeer // indexed by addressSet
	for i := range remotes {
		r := &remotes[i]
		side := addressSet(r)
		if other := len(all[side]) - 1; other >= 0 && all[side][other].sameGateway(r) {
			continue // its ports are fixed for the whole clusterset, so there is no third tunnel
		}
		if inner, ok := b.addConnection(&site, r); ok {
			all[side] = append(all[side], overlayPeer{Remote: r, to: inner})
		}
	}
	for parity, remotes := range all {
		if len(remotes) > 0 {
			// The VXLAN in the connections of address set 0 (even) or 1 (odd).
			o := overlay{
				driver: fabric.DriverIPsec, prefix: desired.IPsecOverlayPrefix, vni: desired.TunnelVNI,
				port: func(int, bool) int { return desired.IPsecVXLANPort },
			}
			if parity == 0 {
				o.prefix, o.vni = desired.IPsecEvenOverlayPrefix, desired.IPsecEvenVNI
			}
			o.build(&b, &site, remotes)
		}
	}
	if len(b.IPsecs) > 0 {
		// Packets enter and leave ESP through this device. It has an address because of the
		// reverse path filter. Even in loose mode the filter drops packets from a device
		// without an address if the reverse route uses another device.
		origin := site.path()
		b.Devices = append(b.Devices, desired.Device{
			Name: desired.IPsecDevice, Type: desired.DeviceIPsec, Up: true, Port: site.IPsec.NATPort, IKEPort: site.IPsec.IKEPort, Origin: origin,
		})
		b.Sysctls = append(b.Sysctls, desired.Sysctl{
			Name: "net/ipv4/conf/" + desired.IPsecDevice + "/rp_filter", Value: "2", Origin: origin,
		})
		held := slices.Clone(site.Gateway.Addresses)
		for _, c := range b.IPsecs {
			if !slices.Contains(held, c.LocalAddr) {
				held = append(held, c.LocalAddr)
				b.Elements = append(b.Elements, desired.Element{
					Set: desired.SetTunnels, Family: fabric.Family(c.LocalAddr), ID: c.LocalAddr.String(), Origin: origin,
				})
			}
		}
		for _, a := range held {
			b.Addresses = append(b.Addresses, desired.Address{Device: desired.IPsecDevice, Prefix: cidr.Single(a), Scope: "global", Origin: origin})
		}
		for _, six := range []bool{false, true} {
			if six && site.V6 || !six && site.V4 {
				b.Rules = append(b.Rules, desired.Rule{
					Priority: desired.RuleIPsec, IPv6: six, UDPPort: desired.IPsecVXLANPort, Table: desired.TableIPsec, Origin: origin,
				})
			}
		}
	}
	for i := range b.Tunnels {
		c := &b.Tunnels[i]
		is := func(s desired.IPsec) bool { return s.Name == c.Connection() }
		if at := slices.IndexFunc(b.IPsecs, is); at >= 0 {
			c.Endpoint = b.IPsecs[at].Remote // destination of ESP, not of the packets inside
		}
	}
	return b
}

// addressSet returns the index of the address set that a connection uses: 0 (even) or 1 (odd).
func addressSet(r *Remote) int {
	if r.Alternate {
		return (r.Epoch + 1) % 2
	}
	return r.Epoch % 2
}

// addConnection adds the connection to a remote gateway and returns the remote's address inside
// it.
func (b *Result) addConnection(site *LocalGateway, r *Remote) (inner netip.Addr, ok bool) {
	own, inner, ok := innerPair(site.Gateway.Addresses, r.Gateway.Addresses)
	if !ok {
		b.problem(r.path(), status.FamilyMissing, "it has no address inside the tunnels of a family that "+site.Gateway.Name+" has too")
		return inner, false
	}
	if addressSet(r) == 0 {
		own, inner = fabric.AlternateAddr(site.Pools, own), fabric.AlternateAddr(site.Pools, inner)
	}
	private, public, found := site.ikeKeys(b, r)
	if !found {
		return inner, false
	}
	id := func(cluster, gateway string) string {
		name := gateway + "." + cluster + ".e" + strconv.Itoa(r.Epoch)
		if r.Alternate {
			name += ".alt" // charon closes a second connection between the same two identities
		}
		return name + ".hawser"
	}
	c := desired.IPsec{
		Name: desired.IPsecName(r.Cluster, r.Gateway.Name, r.Epoch, r.Alternate), Remote: ikeEndpoint(site, r), LocalPort: site.IPsec.NATPort,
		LocalID: id(site.Cluster, site.Gateway.Name), RemoteID: id(r.Cluster, r.Gateway.Name),
		PrivateKey: private, PublicKey: public, LocalAddr: own, RemoteAddr: inner, Initiator: site.initiates(r),
		Encapsulation: site.IPsec.Encapsulation, Proposals: site.IPsec.Proposals, Rekey: time.Duration(site.IPsec.Rekey), Origin: r.path(),
	}
	if len(site.Gateway.Endpoints)+len(r.Gateway.Endpoints) == 0 {
		b.problem(r.path(), status.NoEndpoint, "neither it nor "+site.Gateway.Name+" has an endpoint, so neither can open the connection")
	}
	b.IPsecs = append(b.IPsecs, c)
	b.Routes = append(b.Routes, desired.Route{
		Table: desired.TableIPsec, Dst: cidr.Single(inner), Type: desired.RouteUnicast, Device: desired.IPsecDevice, Src: own, Origin: r.path(),
	})
	return inner, true
}

// innerPair returns a tunnel address of each gateway in the same family; IPv4 if both have one.
func innerPair(own, theirs []netip.Addr) (a, b netip.Addr, ok bool) {
	for _, six := range []bool{false, true} {
		is := func(a netip.Addr) bool { return a.Is6() == six }
		i, j := slices.IndexFunc(own, is), slices.IndexFunc(theirs, is)
		if i >= 0 && j >= 0 {
			return own[i], theirs[j], true
		}
	}
	return a, b, false
}

// ikeKeys returns the own private key and the remote's public key of a tunnel's epoch.
func (s *LocalGateway) ikeKeys(b *Result, r *Remote) (private fabric.Secret, public string, ok bool) {
	private, found := privateKey(Ed25519, s.Keys, s.Gateway.Name, r.Epoch)
	public = publicKey(Ed25519, r.Gateway, r.Epoch)
	switch {
	case !found:
		b.problem(s.path(), status.KeyMissing, "no private Ed25519 key of epoch "+strconv.Itoa(r.Epoch)+", so there is no IPsec")
	case public == "":
		b.problem(r.path(), status.PeerKeyMissing, "no Ed25519 key of epoch "+strconv.Itoa(r.Epoch)+", so there is no IPsec")
	}
	return private, public, found && public != ""
}

// ikeEndpoint returns the remote gateway's address and port for IKE, invalid if the address is
// unknown.
func ikeEndpoint(site *LocalGateway, r *Remote) netip.AddrPort {
	if !r.Addr.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(r.Addr, uint16(IKEPort(site.IPsec, r.RemoteBasePort, r.Link.BasePort(r.Gateway, 0))))
}

func (s *LocalGateway) initiates(r *Remote) bool {
	return IsInitiator(s.Cluster, s.Gateway, r.Cluster, r.Gateway)
}

// IsInitiator reports whether own opens the IPsec connection to remote and rekeys it. The initiator
// is the gateway whose remote has an endpoint; if both do, the first by name. A configured endpoint
// takes precedence over a discovered endpoint. Both gateways get the same result.
func IsInitiator(cluster string, own *fabric.Gateway, other string, remote *fabric.Gateway) bool {
	switch {
	case own.HasStaticEndpoint() != remote.HasStaticEndpoint():
		return remote.HasStaticEndpoint()
	case own.HasDiscoveredEndpoint() != remote.HasDiscoveredEndpoint() && !own.HasStaticEndpoint():
		return remote.HasDiscoveredEndpoint()
	case !own.HasStaticEndpoint() && !own.HasDiscoveredEndpoint():
		return false
	}
	return gatewayPath(cluster, own.Name) < gatewayPath(other, remote.Name)
}

// IKEPort returns the port of IKE at a gateway's endpoint: the common port, or the port from which
// a router forwards. base is the endpoint's base port, usual the gateway's own base port.
func IKEPort(s fabric.IPsec, base, usual int) int {
	if base != usual {
		return base + fabric.IPsecOffset
	}
	return s.NATPort
}
