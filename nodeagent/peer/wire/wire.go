// Package wire encodes and decodes the datagrams between gateways and nodes: a header with sender
// and receiver, followed by TLVs. Decode skips unknown TLVs, so new versions can add TLVs. The
// package is pure and bounds the size of untrusted input.
//
// A message does not authenticate its sender. Each TLV has a value that only this peer received
// from the receiver (docs/security.md). The protocols check that value.
package wire

import (
	"encoding/binary"
	"errors"
	"strings"

	"hawser.dev/hawser/internal/stablehash"
)

const (
	version      = 1
	headerLength = 24
	// MaxEntries bounds the entries of a page, so that a message fits in the minimum MTU of
	// IPv6, 1280 bytes.
	MaxEntries = 128
	// MaxTunnels bounds the tunnels that one end reports.
	MaxTunnels = 16
	// MinSizeProbe is the length of a message with only a Size TLV, in bytes.
	MinSizeProbe = headerLength + tlvHeaderLength + sizeLength
	// Largest is the length of the largest datagram, in bytes.
	Largest = 1<<16 - 1

	tlvHeaderLength         = 3
	probeLength             = 13
	advertLength            = 9
	listLength              = 18
	entryLength             = 9
	tunnelsLength           = 25
	tunnelLength            = 9
	sizeLength              = 10
	directTestLength        = 8
	directReportLength      = 7
	maxTLVs                 = 32 // of one message, including unknown ones
	flagRank           byte = 1<<3 - 1
)

// Types of TLVs. A new TLV needs a new number. An existing TLV may only grow at its end, and only
// if it does not end in a list.
const (
	typePadding      = 0 // ends the message; only after a size probe
	typeProbe        = 1
	typeReply        = 2
	typeAdvert       = 3
	typeList         = 4
	typeTunnels      = 5
	typeSizeProbe    = 6
	typeSizeReply    = 7
	typeDirectTest   = 8
	typeDirectReport = 9
)

// Flags of a probe, of an advert or entry, and of tunnels. Receivers ignore unknown flags.
const (
	flagTriggered   byte = 1 << 0
	flagUnsolicited byte = 1 << 1

	flagLinkInUse      byte = 1 << 3
	flagAcceptsTransit byte = 1 << 4
	flagTraffic        byte = 1 << 5

	flagWantReply byte = 1 << 0
	flagMigrating byte = 1 << 1

	flagAvailable byte = 1 << 0
	flagVerified  byte = 1 << 1
	flagInUse     byte = 1 << 2
	flagSecondary byte = 1 << 3

	flagReceives      byte = 1 << 0
	flagDirectTraffic byte = 1 << 1
)

// Magic is the start of every message.
const Magic = "hwlk"

// ErrMalformed is the error of Decode for any input that is not a message of this version.
var ErrMalformed = errors.New("not a message between gateways of version 1")

// HashID returns the ID of a gateway (cluster/gateway) or of a node of a cluster (cluster/) in
// messages.
func HashID(name string) uint64 { return stablehash.Sum64(strings.Replace(name, "/", "\n", 1)) }

// Message is one datagram.
type Message struct {
	From, To uint64 // IDs of the sender and of the receiver
	// Length is the length of the datagram in bytes. Encode pads the datagram to Length.
	Length int

	Probe   *Probe
	Advert  *Advert
	List    *LinkStateList
	Tunnels *TunnelReport
	Size    *SizeProbe
	Direct  *Direct
}

// Probe is a liveness probe of a link, or a reply. A reply echoes Sequence, Nonce and Triggered.
type Probe struct {
	Reply       bool
	Sequence    uint32
	Nonce       uint64 // random; prevents forged replies
	Triggered   bool   // triggered update or its reply; its loss does not count
	Unsolicited bool   // additional reply to a probe, with new link states
}

// LinkAdvert is the report of one end about a link.
type LinkAdvert struct {
	Rank           uint8 // health.Rank; at most 7
	InUse          bool  // its cluster sends over the link
	AcceptsTransit bool  // the sender accepts transit over the link; in an entry: both ends do
	Traffic        bool  // the sender recently forwarded packets to the cluster of the peer
}

// Advert is the sender's report about the link that the message uses.
type Advert struct {
	LinkAdvert
	// Token authenticates adverts of probes. A reply has the token that the replier expects
	// from this peer, and only this peer receives it. A probe has the token that the peer
	// expects. 0 = unknown.
	Token uint64
}

// Entry is the state of a link to a remote gateway.
type Entry struct {
	ID uint64
	LinkAdvert
}

// LinkStateList is a page of the link states that a gateway sends to the nodes of its cluster. In a
// probe, it has only the generation of the list that the node has.
type LinkStateList struct {
	Generation  uint64 // of the list
	Base        uint64 // generation that the entries update; 0 = complete list
	Page, Pages uint8  // Pages 0 = no entries
	Entries     []Entry
}

// TunnelReport lists all tunnels that one end of a pair has.
type TunnelReport struct {
	WantReply bool   // requests a reply
	Migrating bool   // the sender has not completed its migration and requests more reports
	Seq       uint64 // number of the sender's message, increasing
	AckSeq    uint64 // highest Seq that the sender received from the peer
	ReplyTo   uint64 // Seq of the message that this one replies to; 0 = none
	Tunnels   []TunnelState
}

// TunnelState is the state of one tunnel at the sender.
type TunnelState struct {
	ID        uint64
	Available bool // the sender receives on the tunnel, and announces its removal in advance
	Verified  bool // the sender gets replies over the tunnel
	InUse     bool // the sender may send over the tunnel
	Secondary bool // the sender requests that both ends use the tunnel for now
}

// SizeProbe tests whether a packet of its size passes. A reply echoes Bytes and Nonce and has no
// padding.
type SizeProbe struct {
	Reply bool
	Bytes uint16 // size of the probe's IP packet
	Nonce uint64
}

// Direct tests whether packets between two nodes of a cluster pass without VXLAN. It is a test
// packet that returns to its sender, or a report about test packets.
type Direct struct {
	Report bool
	Nonce  uint64 // random, of a test packet; prevents forged test packets

	// Only a report has these fields. Receives reports that the sender receives the other end's
	// packets directly. Traffic reports that the sender recently sent packets to other
	// clusters. MAC is the hardware address from which the sender sends direct packets.
	Receives bool
	Traffic  bool
	MAC      [6]byte
}

// Encode returns the datagram. Layout, big endian: magic 4 bytes, version 1, zero 3, from 8, to 8;
// then TLVs of type 1, length 2 and value.
func (m *Message) Encode() []byte {
	out := make([]byte, headerLength, max(headerLength+128, m.Length))
	copy(out, Magic)
	out[4] = version
	binary.BigEndian.PutUint64(out[8:], m.From)
	binary.BigEndian.PutUint64(out[16:], m.To)
	if m.Probe != nil {
		out = m.Probe.append(out)
	}
	if m.Advert != nil {
		out = appendTLVHeader(out, typeAdvert, advertLength)
		out = binary.BigEndian.AppendUint64(append(out, m.Advert.flags()), m.Advert.Token)
	}
	if m.List != nil {
		out = m.List.append(out)
	}
	if m.Tunnels != nil {
		out = m.Tunnels.append(out)
	}
	if m.Size != nil {
		out = m.Size.append(out)
	}
	if m.Direct != nil {
		out = m.Direct.append(out)
	}
	if padding := m.Length - len(out); padding > 0 {
		out = append(out, make([]byte, padding)...)
	}
	return out
}

func appendTLVHeader(out []byte, tlvType byte, length int) []byte {
	return binary.BigEndian.AppendUint16(append(out, tlvType), uint16(length))
}

// packFlags returns flags as bits. The first flag is the lowest bit.
func packFlags(flags ...bool) byte {
	var out byte
	for i, set := range flags {
		if set {
			out |= 1 << i
		}
	}
	return out
}

// messageType returns reply if isReply is true, otherwise probe.
func messageType(isReply bool, probe, reply byte) byte {
	if isReply {
		return reply
	}
	return probe
}

func (p *Probe) append(out []byte) []byte {
	out = appendTLVHeader(out, messageType(p.Reply, typeProbe, typeReply), probeLength)
	out = binary.BigEndian.AppendUint32(out, p.Sequence)
	out = binary.BigEndian.AppendUint64(out, p.Nonce)
	return append(out, packFlags(p.Triggered, p.Unsolicited))
}

func (a LinkAdvert) flags() byte {
	return min(a.Rank, flagRank) | packFlags(a.InUse, a.AcceptsTransit, a.Traffic)<<3
}

func advertOf(flags byte) LinkAdvert {
	return LinkAdvert{Rank: flags & flagRank, InUse: flags&flagLinkInUse != 0, AcceptsTransit: flags&flagAcceptsTransit != 0, Traffic: flags&flagTraffic != 0}
}

func (l *LinkStateList) append(out []byte) []byte {
	out = appendTLVHeader(out, typeList, listLength+entryLength*len(l.Entries))
	out = binary.BigEndian.AppendUint64(out, l.Generation)
	out = binary.BigEndian.AppendUint64(out, l.Base)
	out = append(out, l.Page, l.Pages)
	for _, e := range l.Entries {
		out = append(binary.BigEndian.AppendUint64(out, e.ID), e.flags())
	}
	return out
}

func (t *TunnelReport) append(out []byte) []byte {
	out = appendTLVHeader(out, typeTunnels, tunnelsLength+tunnelLength*len(t.Tunnels))
	out = append(out, packFlags(t.WantReply, t.Migrating))
	for _, field := range []uint64{t.Seq, t.AckSeq, t.ReplyTo} {
		out = binary.BigEndian.AppendUint64(out, field)
	}
	for _, e := range t.Tunnels {
		out = append(binary.BigEndian.AppendUint64(out, e.ID), packFlags(e.Available, e.Verified, e.InUse, e.Secondary))
	}
	return out
}

func (s *SizeProbe) append(out []byte) []byte {
	out = appendTLVHeader(out, messageType(s.Reply, typeSizeProbe, typeSizeReply), sizeLength)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint16(out, s.Bytes), s.Nonce)
}

func (d *Direct) append(out []byte) []byte {
	if !d.Report {
		out = appendTLVHeader(out, typeDirectTest, directTestLength)
		return binary.BigEndian.AppendUint64(out, d.Nonce)
	}
	return append(append(appendTLVHeader(out, typeDirectReport, directReportLength), packFlags(d.Receives, d.Traffic)), d.MAC[:]...)
}

// Decode decodes a datagram. It does not retain raw. It skips TLVs of unknown types.
func Decode(raw []byte) (*Message, error) {
	if len(raw) < headerLength || string(raw[:len(Magic)]) != Magic || raw[4] != version {
		return nil, ErrMalformed
	}
	m := &Message{From: binary.BigEndian.Uint64(raw[8:]), To: binary.BigEndian.Uint64(raw[16:]), Length: len(raw)}
	rest := raw[headerLength:]
	for count := 0; len(rest) > 0; count++ {
		if rest[0] == typePadding && m.Size != nil && !m.Size.Reply {
			break
		}
		if count == maxTLVs || rest[0] == typePadding || len(rest) < tlvHeaderLength {
			return nil, ErrMalformed
		}
		end := tlvHeaderLength + int(binary.BigEndian.Uint16(rest[1:]))
		if len(rest) < end || !m.decodeTLV(rest[0], rest[tlvHeaderLength:end]) {
			return nil, ErrMalformed
		}
		rest = rest[end:]
	}
	if l, p := m.List, m.Probe; l != nil && (p == nil || !p.Reply && l.Pages > 0) {
		return nil, ErrMalformed
	}
	return m, nil
}

// decodeTLV decodes one TLV. It reports false if the TLV is malformed or a duplicate.
func (m *Message) decodeTLV(tlvType byte, value []byte) bool {
	switch tlvType {
	case typeProbe, typeReply:
		if m.Probe != nil || len(value) < probeLength {
			return false
		}
		m.Probe = &Probe{
			Reply: tlvType == typeReply, Sequence: binary.BigEndian.Uint32(value), Nonce: binary.BigEndian.Uint64(value[4:]),
			Triggered: value[12]&flagTriggered != 0, Unsolicited: value[12]&flagUnsolicited != 0,
		}
		return m.Probe.Reply || !m.Probe.Unsolicited
	case typeAdvert:
		if m.Advert != nil || len(value) < advertLength {
			return false
		}
		m.Advert = &Advert{LinkAdvert: advertOf(value[0]), Token: binary.BigEndian.Uint64(value[1:])}
	case typeList:
		return m.List == nil && m.decodeList(value)
	case typeTunnels:
		return m.Tunnels == nil && m.decodeTunnels(value)
	case typeSizeProbe, typeSizeReply:
		if m.Size != nil || len(value) < sizeLength {
			return false
		}
		m.Size = &SizeProbe{Reply: tlvType == typeSizeReply, Bytes: binary.BigEndian.Uint16(value), Nonce: binary.BigEndian.Uint64(value[2:])}
	case typeDirectTest:
		if m.Direct != nil || len(value) < directTestLength {
			return false
		}
		m.Direct = &Direct{Nonce: binary.BigEndian.Uint64(value)}
	case typeDirectReport:
		if m.Direct != nil || len(value) < directReportLength {
			return false
		}
		m.Direct = &Direct{Report: true, Receives: value[0]&flagReceives != 0, Traffic: value[0]&flagDirectTraffic != 0, MAC: [6]byte(value[1:])}
	}
	return true
}

func (m *Message) decodeList(value []byte) bool {
	if len(value) < listLength || (len(value)-listLength)%entryLength != 0 || len(value) > listLength+entryLength*MaxEntries {
		return false
	}
	l := &LinkStateList{Generation: binary.BigEndian.Uint64(value), Base: binary.BigEndian.Uint64(value[8:]), Page: value[16], Pages: value[17]}
	for offset := listLength; offset < len(value); offset += entryLength {
		l.Entries = append(l.Entries, Entry{ID: binary.BigEndian.Uint64(value[offset:]), LinkAdvert: advertOf(value[offset+8])})
	}
	m.List = l
	return l.Page < l.Pages || l.Pages == 0 && l.Page == 0 && len(l.Entries) == 0
}

func (m *Message) decodeTunnels(value []byte) bool {
	if len(value) < tunnelsLength || (len(value)-tunnelsLength)%tunnelLength != 0 || len(value) > tunnelsLength+tunnelLength*MaxTunnels {
		return false
	}
	t := &TunnelReport{
		WantReply: value[0]&flagWantReply != 0, Migrating: value[0]&flagMigrating != 0, Seq: binary.BigEndian.Uint64(value[1:]),
		AckSeq: binary.BigEndian.Uint64(value[9:]), ReplyTo: binary.BigEndian.Uint64(value[17:]),
	}
	for offset := tunnelsLength; offset < len(value); offset += tunnelLength {
		flags := value[offset+8]
		t.Tunnels = append(t.Tunnels, TunnelState{
			ID: binary.BigEndian.Uint64(value[offset:]), Available: flags&flagAvailable != 0, Verified: flags&flagVerified != 0,
			InUse: flags&flagInUse != 0, Secondary: flags&flagSecondary != 0,
		})
	}
	m.Tunnels = t
	return true
}
