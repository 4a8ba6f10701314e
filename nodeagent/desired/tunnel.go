package desired

import (
	"net/netip"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/diff"
)

// Tunnel says how packets go to one remote gateway: over which device and next
// hop, and by what its bytes are counted. It is no object of its own. Of several
// tunnels to one gateway the first carries what is sent; all of them take what comes.
// Among them the rank decides, and the order in the list after it.
type Tunnel struct {
	Cluster    string // of the remote gateway
	Gateway    string
	Preference int
	Driver     string
	Epoch      int        // of its keys; 0 = the driver has none
	Alternate  bool       // it stands beside the usual one of its driver
	Port       int        // at which this gateway takes it, UDP
	Link       string     // the device
	Via4       netip.Addr // next hop of IPv4 packets on the device; not valid = none is needed
	Via6       netip.Addr
	MTU        int  // bytes that a packet inside may have
	Clear      bool // what it carries can be read on the way
	// Endpoint is where the remote gateway is first looked for; not valid = it dials in.
	Endpoint netip.AddrPort
	// Sent and Received are the keys of the peers or elements that count its bytes.
	Sent     []string
	Received []string
}

// Via is the next hop of a family on the tunnel's device; not valid = none is needed.
func (c *Tunnel) Via(family int) netip.Addr {
	if family == 4 {
		return c.Via4
	}
	return c.Via6
}

// Connection names the IPsec connection of a tunnel that has one.
func (c *Tunnel) Connection() string { return IPsecName(c.Cluster, c.Gateway, c.Epoch, c.Alternate) }

// IsTunnel reports whether a link of ours leads to gateways of other clusters.
func IsTunnel(link string) bool {
	return strings.HasPrefix(link, DevicePrefix) && !strings.HasPrefix(link, NodePrefix)
}

// Forward is one forwarding entry of a VXLAN device between gateways: frames for
// MAC go to To. Nothing else is forwarded, learned or flooded.
type Forward struct {
	Link   string
	MAC    string
	To     netip.AddrPort
	Origin string
}

// Key is link/hardware address.
func (f Forward) Key() string { return f.Link + "/" + f.MAC }

// Fields gives where frames go.
func (f Forward) Fields() []diff.Field {
	to := ""
	if f.To.IsValid() {
		to = f.To.Addr().String() + " port " + strconv.Itoa(int(f.To.Port()))
	}
	return []diff.Field{{Name: "to", Value: to}}
}
