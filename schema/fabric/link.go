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

// DefaultPort is the default Port of a gateway.
const DefaultPort = 51820

// Ports of a gateway, relative to its Port, or to the Port of the link if it has one.
const (
	WireguardPorts = 2 * MaxGateways          // WireGuard: the first ports, one for each remote ordinal and each of two key epochs
	VXLANOffset    = WireguardPorts           // VXLAN: the two ports after the WireGuard ports; the second one is the alternate port
	IPsecOffset    = WireguardPorts + 1       // IPsec: the port that a router forwards to IPsec.NATPort; the gateway itself does not use it
	GatewayPorts   = WireguardPorts + 2       // consecutive ports of a gateway with all drivers
	MaxPort        = 65535 - GatewayPorts + 1 // maximum Port of a gateway or link, as in the tags of package schema
)

// LinkSettings configures the link between two clusters. All fields except Port and MTU
// are set; agents apply no defaults.
type LinkSettings struct {
	Between   [2]string `json:"between"` // sorted
	Driver    string    `json:"driver"`
	Port      int       `json:"port,omitempty"` // replaces Gateway.Port at both ends; 0 is each gateway's own
	MTU       int       `json:"mtu,omitempty"`  // bytes; 0 = underlay MTU less the driver's overhead
	Keepalive Duration  `json:"keepalive"`
}

// Encapsulations of ESP.
const (
	EncapsulationAuto   = "auto"   // native, or in UDP through NAT
	EncapsulationUDP    = "udp"    // always in UDP (RFC 3948)
	EncapsulationNative = "native" // IP protocol 50; a link through NAT fails
)

// Proposals of IPsec, for IKE and for ESP.
const (
	ProposalAESGCM   = "aes-gcm"  // AES-256-GCM with 16 bytes of ICV (RFC 4106)
	ProposalChaCha20 = "chacha20" // ChaCha20-Poly1305 (RFC 7634)
)

// IPsec configures links with DriverIPsec.
type IPsec struct {
	Encapsulation string   `json:"encapsulation"`
	IKEPort       int      `json:"ikePort"`   // UDP
	NATPort       int      `json:"natPort"`   // UDP, for IKE and ESP in UDP
	Proposals     []string `json:"proposals"` // in order of preference
	Rekey         Duration `json:"rekey"`     // lifetime of ESP keys
}

// ComparePairs orders pairs of names.
func ComparePairs(a, b [2]string) int {
	return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
}

// SortLinks sorts links in the order required by Link.
func SortLinks(links []LinkSettings) {
	slices.SortFunc(links, func(a, b LinkSettings) int { return ComparePairs(a.Between, b.Between) })
}

// SortedPair returns two names in order.
func SortedPair(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// Link returns the settings of the link between two clusters, whether or not
// they are linked.
func (f *Fabric) Link(a, b string) LinkSettings {
	pair := SortedPair(a, b)
	i, ok := slices.BinarySearchFunc(f.Links, pair, func(l LinkSettings, p [2]string) int { return ComparePairs(l.Between, p) })
	if ok {
		return f.Links[i]
	}
	return LinkSettings{Between: pair, Driver: f.Tunnel.Driver, MTU: f.Tunnel.MTU, Keepalive: f.Tunnel.Keepalive}
}

// Drivers returns the drivers of a cluster's links, sorted.
func (f *Fabric) Drivers(cluster string) []string {
	var out []string
	neighbors := f.Graph().Neighbors(cluster)
	if len(f.Links) == 0 {
		neighbors = neighbors[:min(len(neighbors), 1)] // all links are the same
	}
	for _, other := range neighbors {
		if d := f.Link(cluster, other).Driver; !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return out
}

// BasePort returns the base of a gateway's ports on a link. port is the port of the
// endpoint at which the gateway is reached, or 0 if it has none; for the gateway's own
// sockets it is 0.
func (l LinkSettings) BasePort(g *Gateway, port int) int { return cmp.Or(port, l.Port, g.Port) }

// WireguardPort returns the port on which a gateway listens for gateways with the ordinal
// ordinal in an epoch, relative to base. Alternate ports, for the secondary tunnel of a
// migration, count down from the end of the range.
func WireguardPort(base, epoch, ordinal int, alternate bool) int {
	offset := 2*ordinal + (epoch+1)%2 // neighbouring epochs are used together
	if alternate {
		offset = WireguardPorts - 1 - offset
	}
	return base + offset
}

// VXLANPort returns the port on which a gateway receives VXLAN, relative to base. The
// alternate port is the next one.
func VXLANPort(base int, alternate bool) int {
	if alternate {
		base++
	}
	return base + VXLANOffset
}
