package nftrace

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// Filter selects the packets of the clusterset. They arrive over Hawser's devices (hw-*), are to
// one of Prefixes, or arrive from another host with a source in Prefixes.
type Filter struct {
	Prefixes []netip.Prefix // of the clusterset: VIPs, global addresses, flat clusters, DNS
	Exclude  []netip.Prefix // excludes packets from or to these: traffic between agents
	Quiet    []Socket       // excludes packets over the devices for one of these sockets
	// Message is the start of datagrams between agents. The filter excludes such datagrams to
	// MessagePort.
	Message     string
	MessagePort uint16
	// Include limits the filter to packets from or to one of these prefixes; empty = no limit.
	Include []netip.Prefix
}

// Socket is the address and port of this node's agent. Other agents have the same port.
type Socket struct {
	Protocol byte // IPPROTO_UDP, ...
	Addr     netip.AddrPort
}

// rate is the maximum number of traced packets per second. It applies separately to the first
// packets of TCP connections and to all other packets.
const rate = 20

// devicePrefix is the name prefix of Hawser's devices.
const devicePrefix = "hw-"

// Priorities of the base chains. The first chains run after defragmentation (-400) and before all
// chains that drop packets. The last chains run after all other chains.
const (
	firstPriority = -399
	lastPriority  = 1<<31 - 1
)

// batch encodes the table. The socket that commits the batch owns the table: the kernel deletes it
// when the socket closes, also if the process dies.
func (f Filter) batch() *nftables.Batch {
	table := nftables.TableName{Family: nftables.FamilyINet, Name: Table}
	b := tableBatch{nftables.NewBatch(0), table}
	b.CreateTable(nftables.Table{TableName: table, Flags: nftables.TableOwned})
	b.chain(chainPick, nil)
	b.chain(chainIn, filterHook(unix.NF_INET_PRE_ROUTING, firstPriority))
	b.chain(chainOutput, filterHook(unix.NF_INET_LOCAL_OUT, firstPriority))
	b.chain(chainOut, filterHook(unix.NF_INET_POST_ROUTING, lastPriority))
	b.chain(chainInput, filterHook(unix.NF_INET_LOCAL_IN, lastPriority))
	next := chainPick
	if len(f.Include) > 0 {
		next = chainOnly
		b.chain(chainOnly, nil)
		for _, p := range f.Include {
			b.rule(chainOnly, append(matchPrefix(p, true), gotoChain(chainPick))...)
			b.rule(chainOnly, append(matchPrefix(p, false), gotoChain(chainPick))...)
		}
	}
	for _, chain := range []string{chainIn, chainOutput} {
		for _, p := range f.Exclude {
			b.rule(chain, append(matchPrefix(p, true), returnVerdict()...)...)
			b.rule(chain, append(matchPrefix(p, false), returnVerdict()...)...)
		}
		if f.Message != "" {
			b.rule(chain, append(f.message(), returnVerdict()...)...)
		}
		if chain == chainIn {
			for _, s := range f.Quiet {
				b.rule(chain, append(s.match(true), returnVerdict()...)...)
				b.rule(chain, append(s.match(false), returnVerdict()...)...)
			}
			b.rule(chain, append(fromDevices(), gotoChain(next))...)
		}
		for _, p := range f.Prefixes {
			b.rule(chain, append(matchPrefix(p, true), gotoChain(next))...)
			if chain == chainIn {
				// A reply may arrive over any network.
				replies := append(fromOtherHosts(), matchPrefix(p, false)...)
				b.rule(chain, append(replies, gotoChain(next))...)
			}
		}
	}
	b.rule(chainPick, append([]expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: tcpFlags, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{tcpSyn | tcpAck}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{tcpSyn}},
	}, setTrace()...)...)
	b.rule(chainPick, setTrace()...)
	return b.Batch
}

// tableBatch is a batch for one table.
type tableBatch struct {
	*nftables.Batch
	table nftables.TableName
}

// chain adds a chain; hook is nil unless it is a base chain.
func (b tableBatch) chain(name string, hook *nftables.Hook) {
	b.AddChain(nftables.Chain{Table: b.table, Name: name, Hook: hook, Policy: nftables.PolicyAccept})
}

func (b tableBatch) rule(chain string, expressions ...expr.Any) {
	var code nftables.Attributes
	for _, e := range expressions {
		code.Expression(e)
	}
	b.AddRule(nftables.Rule{Table: b.table, Chain: chain, Expressions: code.Encoded()})
}

func filterHook(hook uint32, priority int32) *nftables.Hook {
	return &nftables.Hook{Type: "filter", Number: hook, Priority: priority}
}

// fromDevices matches packets that arrive over Hawser's devices.
func fromDevices() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(devicePrefix)},
	}
}

// fromOtherHosts matches packets that other hosts sent.
func fromOtherHosts() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte("lo\x00")},
	}
}

// match matches packets that arrive over Hawser's devices for the socket's address. They are to its
// port if to is true, and from the same port otherwise.
func (s Socket) match(to bool) []expr.Any {
	const source, target = 0, 2 // offsets of the ports in the headers of UDP and TCP
	offset := uint32(source)
	if to {
		offset = target
	}
	addr := s.Addr.Addr()
	out := append(fromDevices(), matchPrefix(cidr.Single(addr), true)...)
	return append(out,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{s.Protocol}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, s.Addr.Port())},
	)
}

// message matches datagrams to MessagePort that start with Message.
func (f Filter) message() []expr.Any {
	const udpHeader = 8
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, f.MessagePort)},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: udpHeader, Len: uint32(len(f.Message))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(f.Message)},
	}
}

// matchPrefix matches packets to a prefix if to is true, and packets from it otherwise.
func matchPrefix(p netip.Prefix, to bool) []expr.Any {
	proto, size, offset := byte(unix.NFPROTO_IPV4), 4, uint32(12)
	if p.Addr().Is6() {
		proto, size, offset = unix.NFPROTO_IPV6, 16, 8
	}
	if to {
		offset += uint32(size)
	}
	mask := net.CIDRMask(p.Bits(), size*8)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(size)},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(size), Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

func gotoChain(chain string) expr.Any { return &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain} }

func returnVerdict() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}} }

// setTrace makes the kernel report the packet from this rule on, within the rate limit.
func setTrace() []expr.Any {
	return append([]expr.Any{
		&expr.Limit{Type: expr.LimitTypePkts, Rate: rate, Unit: expr.LimitTimeSecond, Burst: rate},
		&expr.Immediate{Register: 1, Data: []byte{1}},
		&expr.Meta{Key: expr.MetaKeyNFTRACE, SourceRegister: true, Register: 1},
	}, returnVerdict()...)
}

// ReversePathDrops returns the number of packets that rp_filter has dropped in the network
// namespace of the thread: the route to their source uses another device. It counts all traffic.
func ReversePathDrops() (int, error) {
	const path, counter = "/proc/thread-self/net/netstat", "IPReversePathFilter"
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read counters of the network: %w", err)
	}
	var names []string // of the last line of names; the line of their values follows
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		i := slices.Index(names, counter)
		if i < 0 {
			names = fields
			continue
		}
		if i >= len(fields) {
			break
		}
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return 0, fmt.Errorf("read %s in %s: %w", counter, path, err)
		}
		return n, nil
	}
	return 0, fmt.Errorf("read %s: it has no %s", path, counter)
}
