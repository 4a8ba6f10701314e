package desired

import (
	"net/netip"
	"strconv"

	"hawser.dev/hawser/internal/diff"
)

// Rule is one routing policy rule of protocol RouteProtocol.
type Rule struct {
	Priority int
	IPv6     bool
	IIF      string // input interface; empty = any
	UDPPort  int    // destination; 0 = any packet
	TCPPort  int    // destination port of TCP; 0 = any packet
	TCPFrom  int    // source port of TCP; 0 = any packet
	OIF      string // interface that a socket is bound to; empty = any
	// Mark is the value of the packet's mark in the bits of Mask; Mask 0 = any mark.
	Mark, Mask uint32
	Table      int
	Goto       int // priority of the rule where the lookup continues; Table is then 0
	Origin     string
}

// Key is family and priority. If several rules share a priority, the device or the mark
// follows.
func (r Rule) Key() string {
	key := family(r.IPv6) + "/" + strconv.Itoa(r.Priority)
	switch {
	case r.Priority == RuleTunnel, r.Priority == RuleReturn, r.Priority == RuleGateway, r.Priority == RuleDirectTest:
		key += "/" + r.IIF
	case r.Priority >= RuleReturnPath && r.Priority <= RuleReturnPathEnd:
		key += "/" + hexNumber(r.Mark)
	}
	return key
}

func hexNumber(n uint32) string { return "0x" + strconv.FormatUint(uint64(n), 16) }

// Fields returns selector and table. A rule is replaced, never modified.
func (r Rule) Fields() []diff.Field {
	return []diff.Field{
		{Name: "iif", Value: r.IIF, Immutable: true},
		{Name: "udpPort", Value: number(r.UDPPort), Immutable: true},
		{Name: "tcpPort", Value: number(r.TCPPort), Immutable: true},
		{Name: "tcpFrom", Value: number(r.TCPFrom), Immutable: true},
		{Name: "oif", Value: r.OIF, Immutable: true},
		{Name: "fwmark", Value: r.fwmark(), Immutable: true},
		{Name: "table", Value: number(r.Table), Immutable: true},
		{Name: "goto", Value: number(r.Goto), Immutable: true},
	}
}

// fwmark returns mark and mask as ip-rule(8) prints them; empty = any mark.
func (r Rule) fwmark() string {
	if r.Mask == 0 && r.Mark == 0 {
		return ""
	}
	return hexNumber(r.Mark) + "/" + hexNumber(r.Mask)
}

// Values of Route.Type.
const (
	RouteUnicast   = "unicast"
	RouteBlackhole = "blackhole"
	RouteThrow     = "throw" // the lookup continues with the next rule
)

// Route is one route of protocol RouteProtocol in a table of Hawser.
type Route struct {
	Table  int
	Dst    netip.Prefix
	Type   string
	Device string     // unicast
	Via    netip.Addr // unicast: next hop on Device, always treated as on-link; invalid if absent
	Src    netip.Addr // preferred source of the host's own packets; invalid = the kernel selects it
	MTU    int        // 0 = MTU of the device
	// Metric is set for an additional route to the same destination. Only sockets bound to its
	// device use it. 0 = the kernel's default.
	Metric int
	Origin string
}

// Key is table and destination, and the metric if it is set.
func (r Route) Key() string {
	key := strconv.Itoa(r.Table) + "/" + r.Dst.String()
	if r.Metric > 0 {
		key += " metric " + strconv.Itoa(r.Metric)
	}
	return key
}

// Equal reports whether the routes are identical.
func (r Route) Equal(other Route) bool { return r == other }

// Fields returns type, device, next hop, source and MTU.
func (r Route) Fields() []diff.Field {
	return []diff.Field{
		{Name: "type", Value: r.Type},
		{Name: "dev", Value: r.Device},
		{Name: "via", Value: addr(r.Via)},
		{Name: "src", Value: addr(r.Src)},
		{Name: "mtu", Value: number(r.MTU)},
	}
}
