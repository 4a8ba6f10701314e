// Package pathmtu finds out how large a packet may be that goes through a
// tunnel. The tunnel's MTU comes from the underlay's interfaces; a router on the
// way may carry less. If it says so (ICMP), the kernel splits the tunnel's own
// packets and all is well. If nobody says so, large packets vanish and small
// ones pass: a black hole, in which connections open and then stall.
//
// A Finder sends datagrams that fill the tunnel's MTU to the gateway at the
// other end, which answers with small ones, so that each direction is measured
// by its own sender. When full size fails again and again while small ones pass,
// it searches the largest size that passes.
//
// How to use what it finds: as the MTU of the routes that lead through the link
// (`ip route ... mtu N`; a route to a cluster has the value of its link). The
// clamp of TCP's segment size follows the route (`tcp option maxseg size set rt
// mtu`). For larger packets that may not be split, the gateway answers with ICMP
// "fragmentation needed" or "packet too big" and the value, so that senders on
// this side learn it too. The value may be below 1280, which IPv6 asks of every
// link (RFC 8200, 5). TCP over IPv6 is made to fit all the same, by its segment
// size; other packets of IPv6 between the value and 1280 bytes are lost, as no
// sender may be told to make them smaller (RFC 8201, 4) and nobody but the sender
// may split them.
// The routes to the tunnel addresses themselves need no value: probes ignore it.
package pathmtu

import (
	"log/slog"
	"net/netip"
	"time"

	"hawser.dev/hawser/internal/trigger"
)

// MinMTU is the smallest size that is searched and reported, bytes: what every
// IPv4 host must take (RFC 791).
const MinMTU = 576

// States of a path.
const (
	Unknown   = "unknown"    // no packet of full size was answered yet, and none found missing
	OK        = "ok"         // full size passes
	Searching = "searching"  // full size does not pass; what does is not known yet
	BlackHole = "black hole" // full size does not pass; MTU is what does
)

// Link is a tunnel to one gateway of another cluster.
type Link struct {
	Peer   string     // cluster/gateway
	Source netip.Addr // own tunnel address
	Addr   netip.Addr // the peer's tunnel address, same family
	MTU    int        // of the tunnel, bytes, IP header included
	// InUse is true while the link carries traffic or is about to. The others are
	// looked at more seldom.
	InUse bool
}

// LinkMTU is what is known of a link.
type LinkMTU struct {
	Link
	State   string
	PathMTU int       // bytes that pass: Link.MTU, or less in a black hole
	Since   time.Time // of State and Value
}

// Config is what a Finder needs for its whole life.
type Config struct {
	Port uint16 // UDP, of both ends, on tunnel addresses
	Log  *slog.Logger
	// Wake is rung when there is something to do before the time of the last tick is over.
	Wake trigger.Trigger
	// OnChange is called when the state or value of any path changed. It must not
	// block. May be nil.
	OnChange func()
}

// Stats counts packets since the start.
type Stats struct {
	Sent      uint64
	Answered  uint64 // replies that matched a probe
	Replied   uint64 // probes that were answered here
	Malformed uint64 // probes that do not have the size that they say
	Foreign   uint64 // not from and for the ends of a link, or a reply to nothing
	Limited   uint64 // probes that the rate bound left without an answer
	Failed    uint64 // packets that the kernel refused to send
}
