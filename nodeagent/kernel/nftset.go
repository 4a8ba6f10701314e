package kernel

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// nftSet is one set or map as it is in the kernel: a desired.Set for one family.
type nftSet struct {
	desired.Set
	Name   string // with the family digit
	Family int    // 4 or 6
}

// Flags and attributes of nf_tables.h that golang.org/x/sys/unix lacks.
const (
	nftSetConcat     = 0x80 // keys are concatenations of intervals
	nftSetDescSize   = 1    // NFTA_SET_DESC_SIZE
	nftSetDescConcat = 2    // NFTA_SET_DESC_CONCAT
	nftSetFieldLen   = 1    // NFTA_SET_FIELD_LEN
	nftSetExpr       = 17   // NFTA_SET_EXPR
	nftElemKeyEnd    = 10   // NFTA_SET_ELEM_KEY_END
)

// nftSets gives all our sets, the IPv4 ones first.
func nftSets() []nftSet {
	var sets []nftSet
	for _, family := range []int{4, 6} {
		for _, s := range desired.Sets() {
			sets = append(sets, nftSet{Set: s, Name: s.Name + strconv.Itoa(family), Family: family})
		}
	}
	return sets
}

// nftAddressFamily is that of addresses of a type in a set of a family.
func nftAddressFamily(t desired.Type, family int) int {
	switch t {
	case desired.TypeAddr4:
		return 4
	case desired.TypeAddr6:
		return 6
	}
	return family
}

func nftTypeOf(t desired.Type, family int) nftables.SetDatatype {
	switch t {
	case desired.TypeAddr, desired.TypeAddr4, desired.TypeAddr6:
		if nftAddressFamily(t, family) == 6 {
			return nftables.TypeIP6Addr
		}
		return nftables.TypeIPAddr
	case desired.TypeProto:
		return nftables.TypeInetProto
	case desired.TypePort:
		return nftables.TypeInetService
	case desired.TypeMark:
		return nftables.TypeMark
	case desired.TypeLink:
		return nftables.TypeIFName
	case desired.TypeVerdict:
		return nftables.TypeVerdict
	}
	panic("nft set part of unknown type " + string(t))
}

// types gives nft's number for a concatenation, and its size in bytes: each
// part of several fills whole 32-bit registers.
func (s nftSet) types(parts []desired.Type) (magic, size uint32) {
	for _, part := range parts {
		t := nftTypeOf(part, s.Family)
		magic = magic<<nftables.SetConcatTypeBits | t.GetNFTMagic()
		size += s.width(part, len(parts) > 1)
	}
	return magic, size
}

func (s nftSet) width(part desired.Type, concatenated bool) uint32 {
	size := nftTypeOf(part, s.Family).Bytes
	if concatenated {
		return uint32(nftAlign(int(size)))
	}
	return size
}

func (s nftSet) isMap() bool { return len(s.Data) > 0 }

func (s nftSet) isVerdict() bool { return s.isMap() && s.Data[0] == desired.TypeVerdict }

// concatenatedRanges reports whether each key is a range in several
// dimensions, which the kernel keeps whole; other ranges are two elements.
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
		flags |= nftSetConcat
	}
	if s.Dynamic {
		flags |= unix.NFT_SET_EVAL
	}
	if s.Expires {
		flags |= unix.NFT_SET_TIMEOUT
	}
	return flags
}

// data gives type and size of the data: a prefix is its first and last address.
func (s nftSet) data() (magic, size uint32) {
	if s.isVerdict() {
		return unix.NFT_DATA_VERDICT, 0
	}
	magic, size = s.types(s.Data)
	if s.Prefixes {
		size *= 2
	}
	return magic, size
}

// declare writes the attributes of a new set, those of nft(8) for the same
// declaration, so that nft lists it as what it is.
func (s nftSet) declare(a *nftAttrs, id uint32) {
	a.text(unix.NFTA_SET_TABLE, desired.TableName)
	a.text(unix.NFTA_SET_NAME, s.Name)
	a.u32(unix.NFTA_SET_FLAGS, s.flags())
	magic, size := s.types(s.Key)
	a.u32(unix.NFTA_SET_KEY_TYPE, magic)
	a.u32(unix.NFTA_SET_KEY_LEN, size)
	if s.isMap() {
		magic, size := s.data()
		a.u32(unix.NFTA_SET_DATA_TYPE, magic)
		a.u32(unix.NFTA_SET_DATA_LEN, size)
	}
	a.u32(unix.NFTA_SET_ID, id)
	if s.concatenatedRanges() {
		a.nest(unix.NFTA_SET_DESC, func() { s.fields(a) })
	}
	if s.Dynamic {
		a.nest(unix.NFTA_SET_DESC, func() { a.u32(nftSetDescSize, nftDynamicSize) })
	}
	if s.Counter {
		a.nest(nftSetExpr, func() { a.text(unix.NFTA_EXPR_NAME, nftCounter) })
	}
	a.bytes(unix.NFTA_SET_USERDATA, s.userData())
}

// nftCounter is the expression that counts packets and bytes.
const nftCounter = "counter"

// fields describes the widths of the parts of a concatenated key.
func (s nftSet) fields(a *nftAttrs) {
	a.nest(nftSetDescConcat, func() {
		for _, part := range s.Key {
			a.nest(unix.NFTA_LIST_ELEM, func() { a.u32(nftSetFieldLen, nftTypeOf(part, s.Family).Bytes) })
		}
	})
}

// userData is what nft itself leaves with a set to know how to print it: byte
// orders (1 is the host's, 2 the network's) and whether the data are ranges.
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

// line describes the set for the digest of the skeleton.
func (s nftSet) line() string {
	keyType, keyLen := s.types(s.Key)
	var dataType, dataLen uint32
	if s.isMap() {
		dataType, dataLen = s.data()
	}
	line := nftSetLine(s.Name, s.flags(), [2]uint32{keyType, keyLen}, [2]uint32{dataType, dataLen})
	if s.Counter {
		line += " " + nftCounter
	}
	return line
}

func nftSetLine(name string, flags uint32, key, data [2]uint32) string {
	return fmt.Sprintf("set %s flags %#x key %d/%d data %d/%d", name, flags, key[0], key[1], data[0], data[1])
}

// nftObservedSet is line for a set of the kernel. Anonymous sets belong to
// their rule and have no line of their own.
func nftObservedSet(body []byte) (name, line string) {
	name = nftText(nftFind(body, unix.NFTA_SET_NAME))
	flags := nftUint32(nftFind(body, unix.NFTA_SET_FLAGS))
	if flags&unix.NFT_SET_ANONYMOUS != 0 {
		return "", ""
	}
	number := func(typ uint16) uint32 { return nftUint32(nftFind(body, typ)) }
	key := [2]uint32{number(unix.NFTA_SET_KEY_TYPE), number(unix.NFTA_SET_KEY_LEN)}
	data := [2]uint32{number(unix.NFTA_SET_DATA_TYPE), number(unix.NFTA_SET_DATA_LEN)}
	if data[0] == unix.NFT_DATA_VERDICT {
		data[1] = 0 // the size of the kernel's own structure
	}
	line = nftSetLine(name, flags, key, data)
	if expression := nftFind(body, nftSetExpr); expression != nil {
		line += " " + nftText(nftFind(expression, unix.NFTA_EXPR_NAME))
	}
	return name, line
}

// nftHostOrder gives a number as a register holds it.
func nftHostOrder(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func nftNetOrder16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
