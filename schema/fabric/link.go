package fabric

import (
	"cmp"
	"slices"
)

// Drivers of links.
const (
	DriverWireguard = "wireguard"
	DriverVXLAN     = "vxlan" // not encrypted
	DriverIPsec     = "ipsec"
)

// DefaultPort is the Port of a gateway that does not say another.
const DefaultPort = 51820

// Ports of a gateway, counted from its Port. A link with a Port of its own
// counts from that one.
const (
	WireguardPorts = 2 * MaxGateways        // WireGuard: one for each lane and each of two key epochs, from the first on
	VXLANOffset    = WireguardPorts         // VXLAN: the one behind those of WireGuard
	IPsecOffset    = WireguardPorts + 1     // IPsec: where a router forwards from to IPsec.NATPort; not a port of the gateway itself
	MaxPort        = 65535 - WireguardPorts // the largest Port of a gateway that has all of them
)

// LinkSettings is what a link between two clusters is made with. All of it is set, but
// for Port; agents have nothing to resolve.
type LinkSettings struct {
	Between   [2]string `json:"between"` // sorted
	Driver    string    `json:"driver"`
	Port      int       `json:"port,omitempty"` // in place of Gateway.Port at both ends; 0: each gateway's own
	MTU       int       `json:"mtu,omitempty"`  // bytes; 0 = underlay MTU less the driver's overhead
	Keepalive Duration  `json:"keepalive"`
}

// Encapsulations of ESP.
const (
	EncapsulationAuto   = "auto"   // in UDP where an address is translated on the way, otherwise native
	EncapsulationUDP    = "udp"    // in UDP always (RFC 3948)
	EncapsulationNative = "native" // IP protocol 50; a link through NAT fails
)

// Proposals of IPsec, for IKE and for ESP.
const (
	ProposalAESGCM   = "aes-gcm"  // AES-256-GCM with 16 bytes of ICV (RFC 4106)
	ProposalChaCha20 = "chacha20" // ChaCha20-Poly1305 (RFC 7634)
)

// IPsec is how links with DriverIPsec are made, should there be any.
type IPsec struct {
	Encapsulation string   `json:"encapsulation"`
	IKEPort       int      `json:"ikePort"`   // UDP
	NATPort       int      `json:"natPort"`   // UDP, for IKE and ESP in UDP
	Proposals     []string `json:"proposals"` // in order of preference
	Rekey         Duration `json:"rekey"`     // age at which the keys of ESP are replaced
}

// ComparePairs orders pairs of names.
func ComparePairs(a, b [2]string) int {
	return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
}

// SortLinks brings links into the order that Link relies on.
func SortLinks(links []LinkSettings) {
	slices.SortFunc(links, func(a, b LinkSettings) int { return ComparePairs(a.Between, b.Between) })
}

// SortedPair gives two names in order.
func SortedPair(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// Link gives what the link between two clusters is made with, whether or not
// they are linked.
func (f *Fabric) Link(a, b string) LinkSettings {
	pair := SortedPair(a, b)
	i, ok := slices.BinarySearchFunc(f.Links, pair, func(l LinkSettings, p [2]string) int { return ComparePairs(l.Between, p) })
	if ok {
		return f.Links[i]
	}
	return LinkSettings{Between: pair, Driver: f.Tunnel.Driver, MTU: f.Tunnel.MTU, Keepalive: f.Tunnel.Keepalive}
}

// Drivers gives the drivers of a cluster's links, sorted.
func (f *Fabric) Drivers(cluster string) []string {
	var out []string
	near := f.Graph().Neighbors(cluster)
	if len(f.Links) == 0 {
		near = near[:min(len(near), 1)] // all links are the same
	}
	for _, other := range near {
		if d := f.Link(cluster, other).Driver; !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return out
}

// BasePort gives the port from which those of a gateway count on a link. port is the
// one of the endpoint under which the gateway is reached, 0 when that has none;
// for the gateway itself it is 0.
func (l LinkSettings) BasePort(g *Gateway, port int) int { return cmp.Or(port, l.Port, g.Port) }

// WireguardPort is where a gateway listens for gateways of a lane in an epoch, as
// counted from base. Alternate ports, which a second tunnel of the same pair needs, are
// counted from the other end of the range.
func WireguardPort(base, epoch, lane int, alternate bool) int {
	offset := 2*lane + (epoch+1)%2 // neighbouring epochs are in force together
	if alternate {
		offset = WireguardPorts - 1 - offset
	}
	return base + offset
}

// VXLANPort is where a gateway takes VXLAN, as counted from base; the alternate one is
// the next.
func VXLANPort(base int, alternate bool) int {
	if alternate {
		base++
	}
	return base + VXLANOffset
}
