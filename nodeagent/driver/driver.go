// Package driver makes the links between gateways of different clusters: one file
// a driver. It is pure: what a gateway and its remotes are goes in, the objects
// that the gateway's host should have come out, of the kinds that all else is
// made of too.
package driver

import (
	"cmp"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

// Driver is one sort of tunnel.
type Driver interface {
	// Traits says what holds for all its tunnels.
	Traits() Traits
	// Build gives all that a gateway has for its tunnels to remotes, which are
	// sorted by cluster and gateway; only those of this driver. Equal arguments
	// give equal results, and a remote more or less changes no object of the
	// others, but for the MTU of a device that they share. What cannot be made is
	// left out and told. A driver never gives an object that another one gives.
	Build(site LocalGateway, remotes []Remote) Result
}

// Traits is what is known of a driver's tunnels without making one.
type Traits struct {
	Name string // as in tunnel.driver
	// Overhead4 and Over6 are the bytes that it adds to a packet over an IPv4 and an
	// IPv6 underlay. Where padding depends on the packet they are the most.
	Overhead4, Overhead6 int
	// Userspace is the largest packet inside where the kernel lacks what the driver
	// needs and a daemon does it; 0 = there is no such bound.
	Userspace int
	// Roaming says that a remote may come from another address family at any time,
	// so Over6 counts always.
	Roaming bool
	// Unencrypted says that what it carries can be read on the way.
	Unencrypted bool
	// FixedPorts says that its ports are those of the whole clusterset, so that a pair has
	// two tunnels of it at most: of two neighbouring epochs, or one usual and one Alt.
	FixedPorts bool
	// Keys names the sort of private key that a gateway needs; empty = none.
	Keys string
}

// Overhead is what a link takes of the underlay's MTU, when its ends may reach
// each other over IPv6 or do so over IPv4 only.
func (t Traits) Overhead(six bool) int {
	if six || t.Roaming {
		return t.Overhead6
	}
	return t.Overhead4
}

// Sorts of private keys.
const (
	X25519  = "x25519"
	Ed25519 = "ed25519"
)

// Drivers gives all drivers.
func Drivers() []Driver { return []Driver{wireguard{}, vxlan{}, ipsec{}} }

// ByName finds a driver; nil when there is none of that name.
func ByName(name string) Driver {
	all := Drivers()
	i := slices.IndexFunc(all, func(d Driver) bool { return d.Traits().Name == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

// LocalGateway is a gateway that gets tunnels.
type LocalGateway struct {
	Cluster string
	Gateway *fabric.Gateway
	Keys    *fabric.Keys   // nil = none came yet
	IPsec   fabric.IPsec   // settings of all its IPsec links
	Pools   []netip.Prefix // of the addresses inside the tunnels
	Addrs   []netip.Addr   // of the gateway's node; outer addresses may be others
	V4, V6  bool           // families of what is carried
}

// Remote is a gateway of another cluster and what the link to it is like.
type Remote struct {
	Cluster string
	Gateway *fabric.Gateway
	Link    fabric.LinkSettings // settings; its driver is the one that builds
	// Preference orders several links to one gateway, which differ in driver, port or epoch:
	// the tunnel of the least is used, and all are there.
	Preference int
	// Epoch is that of the keys; drivers that have none pass over it.
	Epoch int
	// LocalBasePort is the port that those of this gateway count from. Alt says that both ends
	// take other ports than usual behind those that they count from (or other
	// addresses, where ports tell no tunnels apart), as they need the usual ones for
	// another tunnel of the pair.
	LocalBasePort int
	Alternate     bool
	// Addr and Base are where it is reached and the port that its ports count
	// from; an invalid Addr = it dials in.
	Addr           netip.Addr
	RemoteBasePort int
	// DialCount counts how often it was decided to go to Addr, whatever was learned.
	DialCount int
	// Addrs are all the addresses that it may send from, Addr among them, where
	// the fabric names any.
	Addrs []netip.Addr
	MTU   int // bytes that a packet inside may have
	// Prefixes are what its cluster's packets may come from, and what is sent to
	// it, besides its own addresses; sorted.
	Prefixes []netip.Prefix
}

// Result is what a driver makes. Of its state, Tunnels tells where each link's
// packets go; a remote without one has no link.
type Result struct {
	desired.State
	Problems []Problem
}

// Problem is something that a person should know; see project.Problem.
type Problem struct{ Path, Code, Text string }

// Codes of problems.
const (
	KeyMissing     = "key-missing"      // no private key, so no tunnel
	PeerKeyMissing = "peer-key-missing" // a remote gateway without public key
	NoEndpoint     = "no-endpoint"      // a remote gateway that has to be known by its address, and is not
	FamilyMissing  = "family-missing"   // no address of a family inside the tunnels
)

func (b *Result) problem(path, code, text string) {
	b.Problems = append(b.Problems, Problem{path, code, text})
}

func (s *LocalGateway) path() string { return gatewayPath(s.Cluster, s.Gateway.Name) }

func (r *Remote) path() string { return gatewayPath(r.Cluster, r.Gateway.Name) }

// same reports whether both are links to one gateway.
func (r *Remote) same(o *Remote) bool {
	return r.Cluster == o.Cluster && r.Gateway.Name == o.Gateway.Name
}

func gatewayPath(cluster, gateway string) string {
	return "clusters[" + cluster + "].gateways[" + gateway + "]"
}

// device adds a link with what each one needs: this gateway's addresses inside
// the tunnels, a rule by which what comes out of it finds its node, and loose
// reverse path filtering, as the way back is the routing tables' business.
func (b *Result) device(s *LocalGateway, link desired.Device, priority int) {
	origin := s.path()
	link.Up, link.Origin = true, origin
	b.Links = append(b.Links, link)
	for _, a := range s.Gateway.Addresses {
		if a.Is6() && !s.V6 {
			continue
		}
		b.Addresses = append(b.Addresses, desired.Address{Link: link.Name, Prefix: cidr.Single(a), Scope: "global", Origin: origin})
	}
	if s.V4 {
		b.Sysctls = append(b.Sysctls, desired.Sysctl{Name: "net/ipv4/conf/" + link.Name + "/rp_filter", Value: "2", Origin: origin})
	}
	if s.V6 {
		// Whatever the host's defaults for new links are; routers have no business here.
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

// Build has every driver build its part. Remotes of a driver that does not exist
// get no tunnel.
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
			all.Links = append(all.Links, other.Links...)
			all.Wireguards = append(all.Wireguards, other.Wireguards...)
			all.Peers = append(all.Peers, other.Peers...)
			all.Addresses = append(all.Addresses, other.Addresses...)
			all.Neighbours = append(all.Neighbours, other.Neighbours...)
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

// ownPrefixes gives the addresses of a remote gateway and the prefixes behind it.
func (r *Remote) ownPrefixes() []netip.Prefix {
	var out []netip.Prefix
	for _, a := range r.Gateway.Addresses {
		out = append(out, cidr.Single(a))
	}
	out = append(out, r.Prefixes...)
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}
