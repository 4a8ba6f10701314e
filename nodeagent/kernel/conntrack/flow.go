// Package conntrack keeps connections alive when the path to a cluster moves to another
// gateway. With shared egress addresses, only the gateway's conntrack table knows which pod
// owns a flow. The new gateway learns a flow from the client's next packet. A client that only
// receives sends none. Its node knows the flow and sends a refresh packet in its place, which
// expires before the server (docs/adr/0006). The package also purges old entries of a previous
// gateway, which could conflict with the source port of a newer flow.
//
// The package reads and deletes conntrack entries of the network namespace of the calling
// thread. Flows in conntrack zones belong to other programs and are skipped.
package conntrack

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// TCP states of conntrack (uapi/linux/netfilter/nf_conntrack_tcp.h). In SYN_SENT and SYN_RECV, the
// connection is not established yet. In the other states, the server may still send.
const (
	tcpSynSent     = 1
	tcpSynRecv     = 2
	tcpEstablished = 3
	tcpFinWait     = 4
	tcpCloseWait   = 5
)

// Status bits of an entry (uapi/linux/netfilter/nf_conntrack_common.h).
const (
	statusSeenReply = 1 << 1
	statusAssured   = 1 << 2
)

// Attributes of ctnetlink (uapi/linux/netfilter/nfnetlink_conntrack.h).
const (
	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaProtoInfo  = 4
	ctaTimeout    = 7
	ctaMark       = 8
	ctaID         = 12
	ctaZone       = 18

	ctaTupleIP    = 1
	ctaTupleProto = 2

	ctaProtoNum     = 1
	ctaProtoSrcPort = 2
	ctaProtoDstPort = 3

	ctaProtoInfoTCP = 1
	ctaTCPState     = 1
)

// Tuple is one direction of a flow.
type Tuple struct {
	From, To netip.AddrPort
}

// Flow is one conntrack entry.
type Flow struct {
	Protocol uint8 // unix.IPPROTO_TCP or _UDP; other protocols are not read
	// Orig is the first packet as received; Reply is its reply as received. So Reply.From is
	// the translated destination of the flow, and Reply.To its translated source.
	Orig, Reply Tuple
	Status      uint32
	State       uint8 // of TCP
	// Mark is not 0 if another node handed the flow over to this gateway (docs/adr/0013).
	Mark      uint32
	ExpiresIn time.Duration // until the entry expires without a packet, in seconds

	id   uint32
	zone uint16
}

// keepsSource reports whether the flow leaves this node with its original source address. A
// gateway translates the flows of other nodes, other nodes translate none. The port may still
// differ: the kernel changes it if another entry uses it.
func (f *Flow) keepsSource() bool { return f.Reply.To.Addr() == f.Orig.From.Addr() }

// portChanged reports whether the flow leaves with another source port.
func (f *Flow) portChanged() bool { return f.Reply.To.Port() != f.Orig.From.Port() }

// serverMaySend reports whether the server may send next.
func (f *Flow) serverMaySend() bool {
	if f.Protocol == unix.IPPROTO_UDP {
		return true
	}
	return f.State == tcpEstablished || f.State == tcpFinWait || f.State == tcpCloseWait
}

// halfOpen reports whether conntrack saw only the beginning of a connection.
func (f *Flow) halfOpen() bool {
	return f.Protocol == unix.IPPROTO_TCP && (f.State == tcpSynSent || f.State == tcpSynRecv)
}

// parse reads one message of a conntrack dump, after its netlink header. It reports false for
// protocols other than TCP and UDP, and for malformed messages.
func parse(raw []byte) (f Flow, ok bool) {
	const headerSize = 4 // struct nfgenmsg
	if len(raw) < headerSize {
		return f, false
	}
	ok = true
	eachAttribute(raw[headerSize:], func(kind uint16, value []byte) {
		switch {
		case kind == ctaTupleOrig:
			ok = f.parseTuple(value, &f.Orig) && ok
		case kind == ctaTupleReply:
			ok = f.parseTuple(value, &f.Reply) && ok
		case kind == ctaStatus && len(value) == 4:
			f.Status = binary.BigEndian.Uint32(value)
		case kind == ctaMark && len(value) == 4:
			f.Mark = binary.BigEndian.Uint32(value)
		case kind == ctaTimeout && len(value) == 4:
			f.ExpiresIn = time.Duration(binary.BigEndian.Uint32(value)) * time.Second
		case kind == ctaID && len(value) == 4:
			f.id = binary.BigEndian.Uint32(value)
		case kind == ctaZone && len(value) == 2:
			f.zone = binary.BigEndian.Uint16(value)
		case kind == ctaProtoInfo:
			f.parseState(value)
		}
	})
	known := f.Protocol == unix.IPPROTO_TCP || f.Protocol == unix.IPPROTO_UDP
	return f, ok && known && f.Orig.From.IsValid() && f.Orig.To.IsValid() && f.Reply.From.IsValid() && f.Reply.To.IsValid()
}

func (f *Flow) parseTuple(raw []byte, t *Tuple) bool {
	var from, to netip.Addr
	var fromPort, toPort uint16
	eachAttribute(raw, func(kind uint16, value []byte) {
		eachAttribute(value, func(inner uint16, value []byte) {
			switch {
			case kind == ctaTupleIP:
				// 1, 2: IPv4 source, destination; 3, 4: IPv6.
				addr, _ := netip.AddrFromSlice(value)
				if inner == 1 || inner == 3 {
					from = addr
				} else if inner == 2 || inner == 4 {
					to = addr
				}
			case kind == ctaTupleProto && inner == ctaProtoNum && len(value) == 1:
				f.Protocol = value[0]
			case kind == ctaTupleProto && inner == ctaProtoSrcPort && len(value) == 2:
				fromPort = binary.BigEndian.Uint16(value)
			case kind == ctaTupleProto && inner == ctaProtoDstPort && len(value) == 2:
				toPort = binary.BigEndian.Uint16(value)
			}
		})
	})
	t.From, t.To = netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort)
	return from.IsValid() && to.IsValid() && from.Is4() == to.Is4()
}

func (f *Flow) parseState(raw []byte) {
	eachAttribute(raw, func(kind uint16, value []byte) {
		if kind != ctaProtoInfoTCP {
			return
		}
		eachAttribute(value, func(kind uint16, value []byte) {
			if kind == ctaTCPState && len(value) == 1 {
				f.State = value[0]
			}
		})
	})
}

// typeMask masks NLA_F_NESTED and NLA_F_NET_BYTEORDER.
const typeMask = 0x3fff

// eachAttribute calls do for the attributes of a netlink message, up to the first malformed one.
func eachAttribute(raw []byte, visit func(kind uint16, value []byte)) {
	for len(raw) >= unix.SizeofNlAttr {
		size := int(binary.NativeEndian.Uint16(raw))
		if size < unix.SizeofNlAttr || size > len(raw) {
			return
		}
		visit(binary.NativeEndian.Uint16(raw[2:])&typeMask, raw[unix.SizeofNlAttr:size])
		raw = raw[min((size+3)&^3, len(raw)):]
	}
}
