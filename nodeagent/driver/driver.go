// Package driver builds the links between gateways of different clusters, one file per driver.
// It is pure: from a gateway and its remote gateways it returns the objects that the gateway's
// host should have, in the types of package desired.
package driver

import (
	"cmp"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

// Driver is one kind of tunnel.
type Driver interface {
	// Traits returns the properties of all its tunnels.
	Traits() Traits
	// Build returns all objects of a gateway's tunnels to remotes. The remotes all have this
	// driver and are sorted by cluster and gateway. Equal arguments return equal results.
	// Adding or removing a remote changes no object of the others, except the MTU of a shared
	// device. A tunnel that cannot be built is left out and reported as a problem. No two
	// drivers return the same object.
	Build(site LocalGateway, remotes []Remote) Result
}

// Traits are the properties of a driver's tunnels that are known without building one.
type Traits struct {
	Name string // as in tunnel.driver
	// Overhead4 and Overhead6 are the bytes that it adds to a packet over an IPv4 and an IPv6
	// underlay. If padding depends on the packet, they are the maximum.
	Overhead4, Overhead6 int
	// InnerIPv6 is the number of bytes that it adds to both if the tunnel addresses are IPv6; 0
	// if packets inside the tunnel do not use tunnel addresses.
	InnerIPv6 int
	// Userspace is the largest inner packet in bytes between IPv4 tunnel addresses if a daemon
	// encrypts instead of the kernel; 0 means no limit.
	Userspace int
	// Roaming is true if a remote may switch the address family at any time. Overhead then
	// always returns Overhead6.
	Roaming bool
	// Unencrypted is true if its packets are readable on the underlay.
	Unencrypted bool
	// FixedPorts is true if all gateways of the clusterset use the same ports. A pair of
	// gateways then has at most two tunnels: of two neighbouring epochs, or a default and an
	// alternate tunnel.
	FixedPorts bool
	// Keys is the kind of private key that a gateway needs; empty if none.
	Keys string
}

// Overhead returns the bytes that a tunnel subtracts from the underlay's MTU. six is true if
// its gateways may reach each other over IPv6.
func (t Traits) Overhead(six bool) int {
	if six || t.Roaming {
		return t.Overhead6
	}
	return t.Overhead4
}

// Kinds of private keys.
const (
	X25519  = "x25519"
	Ed25519 = "ed25519"
)

// Drivers returns all drivers.
func Drivers() []Driver { return []Driver{wireguard{}, vxlan{}, ipsec{}} }

// ByName returns the driver of that name, or nil.
func ByName(name string) Driver {
	all := Drivers()
	i := slices.IndexFunc(all, func(d Driver) bool { return d.Traits().Name == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

// LocalGateway is the gateway whose tunnels are built.
type LocalGateway struct {
	Cluster string
	Gateway *fabric.Gateway
	Keys    *fabric.Keys   // nil until the keys arrive
	IPsec   fabric.IPsec   // settings of all its IPsec links
	Pools   []netip.Prefix // of the addresses inside the tunnels
	Addrs   []netip.Addr   // of the gateway's node; outer addresses may differ
	V4, V6  bool           // families of the traffic inside
}

// Remote is a gateway of another cluster with the settings of the link to it.
type Remote struct {
	Cluster string
	Gateway *fabric.Gateway
	Link    fabric.LinkSettings // settings; its driver builds the tunnel
	// Preference orders the tunnels to one gateway, which differ in driver, port or epoch. All
	// of them exist. Traffic uses the tunnel with the lowest Preference.
	Preference int
	// Epoch is the epoch of the keys; drivers without keys ignore it.
	Epoch int
	// LocalBasePort is the base of this gateway's ports. Alternate is true if both gateways use
	// the alternate ports above their base ports: another tunnel of the pair then uses the
	// default ports. A driver with FixedPorts uses alternate tunnel addresses instead.
	LocalBasePort int
	Alternate     bool
	// Addr is the remote gateway's address and RemoteBasePort the base of its ports. If Addr is
	// invalid, only the remote gateway dials.
	Addr           netip.Addr
	RemoteBasePort int
	// DialCount counts the decisions to dial Addr regardless of the learned address.
	DialCount int
	// Addrs are all source addresses of the remote gateway, including Addr; empty if unknown.
	Addrs []netip.Addr
	MTU   int // largest packet inside, bytes
	// Prefixes are the sources and destinations of its cluster's traffic, without the gateway's
	// own addresses; sorted.
	Prefixes []netip.Prefix
}

// Result is the output of a driver. Tunnels has an entry for each link; a remote without a Tunnel
// has no link.
type Result struct {
	desired.State
	Problems []Problem
}

// Problem is a fault of the input for the user; see projection.Problem.
type Problem struct{ Path, Code, Text string }

func (b *Result) problem(path, code, text string) {
	b.Problems = append(b.Problems, Problem{path, code, text})
}

func (s *LocalGateway) path() string { return gatewayPath(s.Cluster, s.Gateway.Name) }

func (r *Remote) path() string { return gatewayPath(r.Cluster, r.Gateway.Name) }

// sameGateway reports whether both are tunnels to one gateway.
func (r *Remote) sameGateway(o *Remote) bool {
	return r.Cluster == o.Cluster && r.Gateway.Name == o.Gateway.Name
}

func gatewayPath(cluster, gateway string) string {
	return "clusters[" + cluster + "].gateways[" + gateway + "]"
}

// device adds a device, this gateway's tunnel addresses on it, a rule that routes received packets
// to their node, and sysctls. Reverse path filtering is loose, because the routing tables select
// the route back.
func (b *Result) device(s *LocalGateway, link desired.Device, priority int) {
	origin := s.path()
	link.Up, link.Origin = true, origin
	b.Devices = append(b.Devices, link)
	for _, a := range s.Gateway.Addresses {
		if a.Is6() && !s.V6 {
			continue
		}
		b.Addresses = append(b.Addresses, desired.Address{Device: link.Name, Prefix: cidr.Single(a), Scope: "global", Origin: origin})
	}
	if s.V4 {
		b.Sysctls = append(b.Sysctls, desired.Sysctl{Name: "net/ipv4/conf/" + link.Name + "/rp_filter", Value: "2", Origin: origin})
	}
	if s.V6 {
		// Do not depend on the host's defaults for new devices; no router advertises on
		// them.
		for _, name := range []string{"disable_ipv6", "accept_ra"} {
			b.Sysctls = append(b.Sysctls, desired.Sysctl{Name: "net/ipv6/conf/" + link.Name + "/" + name, Value: "0", Origin: origin})
		}
	}
	for _, six := range []bool{false, true} {
		if six && s.V6 || !six && s.V4 {
			b.Rules = append(b.Rules, desired.Rule{
				Priority: priority, IPv6: six, IIF: link.Name, Table: desired.TableIn, Origin: origin,
			})
		}
	}
}

// Build calls every driver for its remotes. Remotes with an unknown driver get no tunnel.
func Build(site LocalGateway, remotes []Remote) Result {
	var all Result
	for _, d := range Drivers() {
		var mine []Remote
		for _, r := range remotes {
			if r.Link.Driver == d.Traits().Name {
				mine = append(mine, r)
			}
		}
		if len(mine) > 0 {
			other := d.Build(site, mine)
			all.Sysctls = append(all.Sysctls, other.Sysctls...)
			all.Devices = append(all.Devices, other.Devices...)
			all.Wireguards = append(all.Wireguards, other.Wireguards...)
			all.Peers = append(all.Peers, other.Peers...)
			all.Addresses = append(all.Addresses, other.Addresses...)
			all.Neighbors = append(all.Neighbors, other.Neighbors...)
			all.Forwards = append(all.Forwards, other.Forwards...)
			all.Rules = append(all.Rules, other.Rules...)
			all.Routes = append(all.Routes, other.Routes...)
			all.Elements = append(all.Elements, other.Elements...)
			all.IPsecs = append(all.IPsecs, other.IPsecs...)
			all.Tunnels = append(all.Tunnels, other.Tunnels...)
			all.Problems = append(all.Problems, other.Problems...)
		}
	}
	slices.SortStableFunc(all.Tunnels, func(a, b desired.Tunnel) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Gateway, b.Gateway), cmp.Compare(a.Preference, b.Preference))
	})
	return all
}

// ownPrefixes returns the addresses of a remote gateway and the prefixes behind it.
func (r *Remote) ownPrefixes() []netip.Prefix {
	var out []netip.Prefix
	for _, a := range r.Gateway.Addresses {
		out = append(out, cidr.Single(a))
	}
	out = append(out, r.Prefixes...)
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}
