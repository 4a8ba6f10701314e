package nftrace

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Verdicts as linux/netfilter.h and linux/netfilter/nf_tables.h number them.
const (
	nfDrop   = 0
	nfAccept = 1
	nfQueue  = 3
	nfMask   = 0xff // the higher bits have the queue or an error number
)

// TCP header flags.
const (
	tcpFlags = 13 // offset of the flags
	tcpSyn   = 0x02
	tcpReset = 0x04
	tcpAck   = 0x10
)

// traceMessage has the attributes of one trace message (NFT_MSG_TRACE).
type traceMessage struct {
	step                  Step
	network, transport    []byte
	in, out               uint32
	kind, verdict, policy uint32
}

// decode decodes a message of the netlink group NFNLGRP_NFTRACE. names returns interface names.
func decode(message []byte, names func(index uint32) string) (Step, error) {
	const generic = 4 // struct nfgenmsg
	if len(message) < generic {
		return Step{}, fmt.Errorf("trace message of %d bytes", len(message))
	}
	attrs, err := netlink.NewAttributeDecoder(message[generic:])
	if err != nil {
		return Step{}, fmt.Errorf("read trace message: %w", err)
	}
	attrs.ByteOrder = binary.BigEndian
	t := traceMessage{step: Step{Rule: RuleRef{Family: family(message[0])}}, verdict: ^uint32(0)}
	for attrs.Next() {
		t.parseAttr(attrs)
	}
	if err := attrs.Err(); err != nil {
		return Step{}, fmt.Errorf("read trace message: %w", err)
	}
	if t.kind != unix.NFT_TRACETYPE_RULE {
		t.step.Rule.Rule = 0
	}
	t.step.Verdict = t.decision()
	t.step.Flow = t.flow(names)
	return t.step, nil
}

func (t *traceMessage) parseAttr(attrs *netlink.AttributeDecoder) {
	switch attrs.Type() {
	case unix.NFTA_TRACE_TABLE:
		t.step.Rule.Table = attrs.String()
	case unix.NFTA_TRACE_CHAIN:
		t.step.Rule.Chain = attrs.String()
	case unix.NFTA_TRACE_RULE_HANDLE:
		t.step.Rule.Rule = attrs.Uint64()
	case unix.NFTA_TRACE_TYPE:
		t.kind = attrs.Uint32()
	case unix.NFTA_TRACE_ID:
		t.step.ID = attrs.Uint32()
	case unix.NFTA_TRACE_POLICY:
		t.policy = attrs.Uint32()
	case unix.NFTA_TRACE_IIF:
		t.in = attrs.Uint32()
	case unix.NFTA_TRACE_OIF:
		t.out = attrs.Uint32()
	case unix.NFTA_TRACE_NETWORK_HEADER:
		t.network = attrs.Bytes()
	case unix.NFTA_TRACE_TRANSPORT_HEADER:
		t.transport = attrs.Bytes()
	case unix.NFTA_TRACE_VERDICT:
		attrs.Nested(func(nested *netlink.AttributeDecoder) error {
			nested.ByteOrder = binary.BigEndian
			for nested.Next() {
				if nested.Type() == unix.NFTA_VERDICT_CODE {
					t.verdict = nested.Uint32()
				}
			}
			return nil
		})
	}
}

func (t *traceMessage) decision() Verdict {
	verdict := t.verdict
	if t.kind == unix.NFT_TRACETYPE_POLICY {
		verdict = t.policy
	}
	if int32(verdict) < 0 { // continue, jump, return, ... are negative
		return Continues
	}
	switch verdict & nfMask {
	case nfDrop:
		return Dropped
	case nfAccept:
		return Accepted
	case nfQueue:
		return Queued
	}
	return Continues
}

// flow decodes the headers. It returns nil without headers, because only the first step of a hook
// has them.
func (t *traceMessage) flow(names func(index uint32) string) *Flow {
	f := &Flow{}
	var protocol byte
	var from, to netip.Addr
	switch n := t.network; {
	case len(n) >= 20 && n[0]>>4 == 4:
		protocol = n[9]
		from, _ = netip.AddrFromSlice(n[12:16])
		to, _ = netip.AddrFromSlice(n[16:20])
	case len(n) >= 40 && n[0]>>4 == 6:
		protocol = n[6]
		from, _ = netip.AddrFromSlice(n[8:24])
		to, _ = netip.AddrFromSlice(n[24:40])
	default:
		return nil
	}
	f.Protocol = "protocol " + strconv.Itoa(int(protocol))
	var source, target uint16
	switch protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP:
		f.Protocol = map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp"}[protocol]
		if len(t.transport) >= 4 {
			source, target = binary.BigEndian.Uint16(t.transport), binary.BigEndian.Uint16(t.transport[2:])
		}
		f.Reset = protocol == unix.IPPROTO_TCP && len(t.transport) > tcpFlags && t.transport[tcpFlags]&tcpReset != 0
	case unix.IPPROTO_ICMP:
		f.Protocol = "icmp"
	case unix.IPPROTO_ICMPV6:
		f.Protocol = "icmpv6"
	}
	f.From, f.To = netip.AddrPortFrom(from, source), netip.AddrPortFrom(to, target)
	f.In, f.Out = names(t.in), names(t.out)
	return f
}

func family(code byte) string {
	switch code {
	case unix.NFPROTO_IPV4:
		return "ip"
	case unix.NFPROTO_IPV6:
		return "ip6"
	case unix.NFPROTO_INET:
		return "inet"
	case unix.NFPROTO_BRIDGE:
		return "bridge"
	case unix.NFPROTO_NETDEV:
		return "netdev"
	}
	return "family " + strconv.Itoa(int(code))
}
