// Package pathmtu discovers the largest packet that passes a tunnel (RFC 8899). The MTU of the
// tunnel is derived from underlay interfaces, but a router on the path may have a smaller MTU. If
// the router reports that (ICMP), the kernel fragments the packets of the tunnel. Otherwise large
// packets are lost and small packets pass. In such a black hole, connections open and then stall.
//
// A Finder sends datagrams of the tunnel's MTU to the remote gateway. That gateway replies with
// small datagrams, so each end measures the direction in which it sends. If full size fails
// repeatedly while small probes pass, the Finder searches for the largest size that passes.
//
// The result is the MTU of the routes over the link (`ip route ... mtu N`). The TCP MSS clamp
// follows the route (`tcp option maxseg size set rt mtu`). If a larger packet must not be
// fragmented, the gateway replies with ICMP "fragmentation needed" or "packet too big". Thus
// senders on this side learn the value.
//
// The value may be below 1280, the minimum IPv6 MTU of a link (RFC 8200, 5). TCP over IPv6 still
// works because of its segment size. Other IPv6 packets between the value and 1280 bytes are lost.
// Senders must ignore a smaller MTU (RFC 8201, 4), and only the sender may fragment.
//
// The routes to the tunnel addresses themselves need no value: probes ignore it.
package pathmtu

import (
	"log/slog"
	"net/netip"
	"time"

	"hawser.dev/hawser/internal/trigger"
)

// MinMTU is the smallest size that is searched and reported, in bytes. Every IPv4 host must accept
// packets of this size (RFC 791).
const MinMTU = 576

// States of a path.
const (
	Unknown   = "unknown"    // no reply to a full-size probe yet, and no smaller size found
	OK        = "ok"         // full size passes
	Searching = "searching"  // full size does not pass; a size that passes is not found yet
	BlackHole = "black hole" // full size does not pass; PathMTU passes
)

// Link is a tunnel to one gateway of another cluster.
type Link struct {
	Peer   string     // cluster/gateway
	Source netip.Addr // local tunnel address
	Addr   netip.Addr // tunnel address of the peer, same family
	MTU    int        // of the tunnel, in bytes, with the IP header
	// InUse reports whether the link is active or will be. A link in use is tried at once.
	// While its cluster has traffic (Finder.SetTraffic), it is tried more often than other
	// links.
	InUse bool
}

// LinkMTU is the result for a link.
type LinkMTU struct {
	Link
	State   string
	PathMTU int       // bytes that pass: Link.MTU, or less in a black hole
	Since   time.Time // of State and PathMTU
}

// Config configures a Finder.
type Config struct {
	Port uint16 // UDP, of both ends, on tunnel addresses
	Log  *slog.Logger
	// Wake fires if a tick is due earlier than the last tick returned.
	Wake trigger.Trigger
	// OnChange runs after State or PathMTU of a link changed. It must not block. May be nil.
	OnChange func()
}

// Stats counts packets since the start.
type Stats struct {
	Sent      uint64
	Answered  uint64 // replies that matched a probe
	Replied   uint64 // replies to probes
	Malformed uint64 // probes whose size differs from SizeProbe.Bytes
	Foreign   uint64 // messages of unknown gateways, and replies without a probe
	Limited   uint64 // probes without a reply because of the rate limit
	Failed    uint64 // packets that the kernel refused to send
}
