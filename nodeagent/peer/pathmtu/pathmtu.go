// Package pathmtu discovers the largest packet that passes a tunnel (RFC 8899). The tunnel's
// MTU comes from the underlay's interfaces, but a router on the path may have a smaller one. If
// the router reports it (ICMP), the kernel fragments the tunnel's own packets. If it does not,
// large packets are lost and small ones pass. In such a black hole, connections open and then
// stall.
//
// A Finder sends datagrams of the tunnel's MTU to the gateway at the remote end. That gateway
// replies with small ones, so each direction is measured by its own sender. If full size fails
// repeatedly while small probes pass, it searches the largest size that passes.
//
// The result is the MTU of the routes through the link (`ip route ... mtu N`; a route to a
// cluster has the value of its link). The TCP MSS clamp follows the route (`tcp option maxseg
// size set rt mtu`). For larger packets that may not be fragmented, the gateway replies with
// ICMP "fragmentation needed" or "packet too big" and the value, so senders on this side learn
// it too.
//
// The value may be below 1280, the minimum IPv6 MTU of a link (RFC 8200, 5). TCP over IPv6
// still fits, by its segment size. Other IPv6 packets between the value and 1280 bytes are
// lost: no sender may be told to make them smaller (RFC 8201, 4), and only the sender may
// fragment them.
//
// The routes to the tunnel addresses themselves need no value: probes ignore it.
package pathmtu

import (
	"log/slog"
	"net/netip"
	"time"

	"hawser.dev/hawser/internal/trigger"
)

// MinMTU is the smallest size that is searched and reported, bytes: the size that every IPv4
// host must accept (RFC 791).
const MinMTU = 576

// States of a path.
const (
	Unknown   = "unknown"    // no reply to a full-size probe yet, and no smaller size found
	OK        = "ok"         // full size passes
	Searching = "searching"  // full size does not pass; the size that passes is not found yet
	BlackHole = "black hole" // full size does not pass; PathMTU passes
)

// Link is a tunnel to one gateway of another cluster.
type Link struct {
	Peer   string     // cluster/gateway
	Source netip.Addr // own tunnel address
	Addr   netip.Addr // the peer's tunnel address, same family
	MTU    int        // of the tunnel, bytes, IP header included
	// InUse is true while the link is active or about to be. It is tried at once, and then, while its
	// cluster has traffic (Finder.SetTraffic), more often than other links.
	InUse bool
}

// LinkMTU is the result for a link.
type LinkMTU struct {
	Link
	State   string
	PathMTU int       // bytes that pass: Link.MTU, or less in a black hole
	Since   time.Time // of State and Value
}

// Config configures a Finder.
type Config struct {
	Port uint16 // UDP, of both ends, on tunnel addresses
	Log  *slog.Logger
	// Wake is fired if the next tick is due before the time that the last one returned.
	Wake trigger.Trigger
	// OnChange is called when the state or value of any path changed. It must not block. May be
	// nil.
	OnChange func()
}

// Stats counts packets since the start.
type Stats struct {
	Sent      uint64
	Answered  uint64 // replies that matched a probe
	Replied   uint64 // probes that this gateway replied to
	Malformed uint64 // probes whose size differs from the stated size
	Foreign   uint64 // not between the ends of a known link, or a reply to no probe
	Limited   uint64 // probes without a reply because of the rate limit
	Failed    uint64 // packets that the kernel refused to send
}
