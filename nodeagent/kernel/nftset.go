package kernel

import (
	"encoding/binary"
	"fmt"
	"strconv"

	googlenft "github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// nftSet is one set or map in the kernel: a desired.Set for one family.
type nftSet struct {
	desired.Set
	Name   string // with the family digit
	Family int    // 4 or 6
}

// nftSets returns all our sets, IPv4 first.
func nftSets() []nftSet {
	var sets []nftSet
	for _, family := range []int{4, 6} {
		for _, s := range desired.Sets() {
			sets = append(sets, nftSet{Set: s, Name: s.Name + strconv.Itoa(family), Family: family})
		}
	}
	return sets
}

// nftAddressFamily returns the family of the addresses of a type in a set of a family.
func nftAddressFamily(t desired.Type, family int) int {
	switch t {
	case desired.TypeAddr4:
		return 4
	case desired.TypeAddr6:
		return 6
	}
	return family
}

func nftTypeOf(t desired.Type, family int) googlenft.SetDatatype {
	switch t {
	case desired.TypeAddr, desired.TypeAddr4, desired.TypeAddr6:
		if nftAddressFamily(t, family) == 6 {
			return googlenft.TypeIP6Addr
		}
		return googlenft.TypeIPAddr
	case desired.TypeProto:
		return googlenft.TypeInetProto
	case desired.TypePort:
		return googlenft.TypeInetService
	case desired.TypeMark:
		return googlenft.TypeMark
	case desired.TypeIfname:
		return googlenft.TypeIFName
	case desired.TypeVerdict:
		return googlenft.TypeVerdict
	}
	panic("nft set part of unknown type " + string(t))
}

// types returns the type of a key or of data. Each part of a concatenation fills whole 32-bit
// registers.
func (s nftSet) types(parts []desired.Type) (t nftables.Type) {
	for _, part := range parts {
		datatype := nftTypeOf(part, s.Family)
		t.Number = t.Number<<googlenft.SetConcatTypeBits | datatype.GetNFTMagic()
		t.Size += s.width(part, len(parts) > 1)
	}
	return t
}

func (s nftSet) width(part desired.Type, concatenated bool) uint32 {
	size := nftTypeOf(part, s.Family).Bytes
	if concatenated {
		return (size + 3) &^ 3
	}
	return size
}

func (s nftSet) isMap() bool { return len(s.Data) > 0 }

func (s nftSet) isVerdict() bool { return s.isMap() && s.Data[0] == desired.TypeVerdict }

// concatenatedRanges reports whether each key is a range in several dimensions. The kernel
// stores such a range as one element, and other ranges as two.
func (s nftSet) concatenatedRanges() bool { return s.Interval && len(s.Key) > 1 }

func (s nftSet) flags() uint32 {
	var flags uint32
	if s.Interval {
		flags |= unix.NFT_SET_INTERVAL
	}
	if s.isMap() {
		flags |= unix.NFT_SET_MAP
	}
	if s.concatenatedRanges() {
		flags |= nftables.SetConcatenation
	}
	if s.Dynamic {
		flags |= unix.NFT_SET_EVAL
	}
	if s.Expires {
		flags |= unix.NFT_SET_TIMEOUT
	}
	return flags
}

// dataType returns the type of a map's data. A prefix is its first and its last address.
func (s nftSet) dataType() nftables.Type {
	switch {
	case !s.isMap():
		return nftables.Type{}
	case s.isVerdict():
		return nftables.Type{Number: unix.NFT_DATA_VERDICT}
	}
	t := s.types(s.Data)
	if s.Prefixes {
		t.Size *= 2
	}
	return t
}

// nftCounter is the expression that counts packets and bytes.
const nftCounter = "counter"

// name returns the name of the set in the kernel.
func (s nftSet) name() nftables.SetName { return nftables.SetName{Table: nftTable(), Name: s.Name} }

// declaration returns the set as nft(8) would declare it, so that nft lists it in the same way.
func (s nftSet) declaration(id uint32) nftables.Set {
	out := nftables.Set{
		SetName: s.name(), ID: id, Flags: s.flags(), Key: s.types(s.Key), Data: s.dataType(), UserData: s.userData(),
	}
	if s.Counter {
		out.ElemExpr = nftCounter
	}
	if s.Dynamic {
		out.Size = nftDynamicSize
	}
	if s.concatenatedRanges() {
		for _, part := range s.Key {
			out.Fields = append(out.Fields, nftTypeOf(part, s.Family).Bytes)
		}
	}
	return out
}

// userData returns the user data that nft(8) stores with a set for printing: byte orders (1 is
// the host's, 2 the network's) and whether the data are ranges.
func (s nftSet) userData() []byte {
	order := func(part desired.Type) uint32 {
		if part == desired.TypeMark {
			return 1
		}
		return 2
	}
	udata := userdata.AppendUint32(nil, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, order(s.Key[0]))
	if s.isMap() {
		udata = userdata.AppendUint32(udata, userdata.NFTNL_UDATA_SET_DATABYTEORDER, order(s.Data[0]))
	}
	if s.Prefixes {
		udata = userdata.AppendUint32(udata, userdata.NFTNL_UDATA_SET_DATA_INTERVAL, 1)
	}
	return udata
}

// line describes the set for the digest of the table.
func (s nftSet) line() string { return nftSetLine(s.declaration(0)) }

// nftSetLine describes a set for the digest of the table.
func nftSetLine(s nftables.Set) string {
	if s.Data.Number == unix.NFT_DATA_VERDICT {
		s.Data.Size = 0 // the kernel reports the size of its own structure
	}
	line := fmt.Sprintf("set %s flags %#x key %d/%d data %d/%d", s.Name, s.Flags, s.Key.Number, s.Key.Size, s.Data.Number, s.Data.Size)
	if s.ElemExpr != "" {
		line += " " + s.ElemExpr
	}
	return line
}

// nftHostOrder returns a number in the encoding of a register: host byte order.
func nftHostOrder(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func nftNetOrder16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
