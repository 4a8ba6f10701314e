package desired

import (
	"net/netip"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/diff"
)

// Tunnel describes how packets reach one remote gateway: device, next hop, and the counters for its
// bytes. It is not a kernel object. If a gateway has several tunnels, all of them receive and the
// first one sends. Tunnels are ordered by Preference, lowest first, then by their place in the
// list.
type Tunnel struct {
	Cluster    string // of the remote gateway
	Gateway    string
	Preference int
	Driver     string
	Epoch      int  // of its keys; 0 if the driver has no keys
	Alternate  bool // it is the alternate tunnel of its driver
	Port       int  // UDP port where this gateway receives it
	Device     string
	Via4       netip.Addr // next hop of IPv4 packets on the device; invalid if not needed
	Via6       netip.Addr
	MTU        int  // largest packet inside, bytes
	Clear      bool // its packets are not encrypted
	// Endpoint is the first address of the remote gateway to dial; invalid = the remote gateway
	// dials in.
	Endpoint netip.AddrPort
	// Sent and Received are the keys of the peers or elements that count its bytes.
	Sent     []string
	Received []string
}

// Via returns the next hop of a family on the tunnel's device; invalid if not needed.
func (c *Tunnel) Via(family int) netip.Addr {
	if family == 4 {
		return c.Via4
	}
	return c.Via6
}

// Connection returns the name of the tunnel's IPsec connection.
func (c *Tunnel) Connection() string { return IPsecName(c.Cluster, c.Gateway, c.Epoch, c.Alternate) }

// IsTunnel reports whether a device of ours leads to gateways of other clusters.
func IsTunnel(device string) bool {
	return strings.HasPrefix(device, DevicePrefix) && !strings.HasPrefix(device, NodeDevicePrefix)
}

// Forward is one forwarding entry of a VXLAN device between gateways: it sends frames for MAC
// to To. The device neither forwards other frames, nor learns, nor floods.
type Forward struct {
	Device string
	MAC    string
	To     netip.AddrPort
	Origin string
}

// Key is device/hardware address.
func (f Forward) Key() string { return f.Device + "/" + f.MAC }

// Fields returns the destination of the frames.
func (f Forward) Fields() []diff.Field {
	to := ""
	if f.To.IsValid() {
		to = f.To.Addr().String() + " port " + strconv.Itoa(int(f.To.Port()))
	}
	return []diff.Field{{Name: "to", Value: to}}
}
