package nftables

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Attributes encodes netlink attributes. Numbers are in network byte order, as nf_tables
// expects them; strings end with a zero byte.
type Attributes struct{ buf []byte }

const attrHeaderSize = 4

// typeMask removes the flags of an attribute's type.
const typeMask = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)

func align(n int) int { return (n + 3) &^ 3 }

// Encoded returns all attributes. It is valid until the next one is added.
func (a *Attributes) Encoded() []byte { return a.buf }

// Bytes adds an attribute with a value.
func (a *Attributes) Bytes(typ uint16, value []byte) {
	start := a.open(typ)
	a.buf = append(a.buf, value...)
	a.close(start)
}

// String adds a string.
func (a *Attributes) String(typ uint16, value string) {
	start := a.open(typ)
	a.buf = append(a.buf, value...)
	a.buf = append(a.buf, 0)
	a.close(start)
}

// Uint32 adds a number.
func (a *Attributes) Uint32(typ uint16, value uint32) {
	start := a.open(typ)
	a.buf = binary.BigEndian.AppendUint32(a.buf, value)
	a.close(start)
}

// Uint64 adds a number.
func (a *Attributes) Uint64(typ uint16, value uint64) {
	start := a.open(typ)
	a.buf = binary.BigEndian.AppendUint64(a.buf, value)
	a.close(start)
}

// Nest adds an attribute whose attributes the function inside adds.
func (a *Attributes) Nest(typ uint16, inside func()) {
	start := a.open(typ | unix.NLA_F_NESTED)
	inside()
	a.close(start)
}

// Expression adds an expression of a rule. It panics if package expr cannot encode it,
// which is an error of the program.
func (a *Attributes) Expression(e expr.Any) {
	body, err := expr.Marshal(unix.NFPROTO_INET, e)
	if err != nil {
		panic(fmt.Sprintf("encode nft expression %T: %v", e, err))
	}
	a.Bytes(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, body)
}

// data adds a value in the form of registers and set elements.
func (a *Attributes) data(typ uint16, value []byte) {
	start := a.open(typ | unix.NLA_F_NESTED)
	a.Bytes(unix.NFTA_DATA_VALUE, value)
	a.close(start)
}

// open starts an attribute and returns its offset, for close.
func (a *Attributes) open(typ uint16) int {
	start := len(a.buf)
	a.buf = append(a.buf, 0, 0, 0, 0)
	binary.NativeEndian.PutUint16(a.buf[start+2:], typ)
	return start
}

// close writes the length of the attribute at start, and pads.
func (a *Attributes) close(start int) {
	binary.NativeEndian.PutUint16(a.buf[start:], uint16(len(a.buf)-start))
	for len(a.buf)%4 != 0 {
		a.buf = append(a.buf, 0)
	}
}

// each calls visit for each attribute of b, with the flags removed from the type.
func each(b []byte, visit func(typ uint16, value []byte) error) error {
	for len(b) >= attrHeaderSize {
		size := int(binary.NativeEndian.Uint16(b))
		if size < attrHeaderSize || size > len(b) {
			return fmt.Errorf("netlink attribute of %d bytes in a space of %d", size, len(b))
		}
		if err := visit(binary.NativeEndian.Uint16(b[2:])&typeMask, b[attrHeaderSize:size]); err != nil {
			return err
		}
		b = b[min(align(size), len(b)):]
	}
	return nil
}

// find returns the value of the first attribute of a type, or nil.
func find(b []byte, typ uint16) []byte {
	for len(b) >= attrHeaderSize {
		size := int(binary.NativeEndian.Uint16(b))
		if size < attrHeaderSize || size > len(b) {
			return nil
		}
		if binary.NativeEndian.Uint16(b[2:])&typeMask == typ {
			return b[attrHeaderSize:size]
		}
		b = b[min(align(size), len(b)):]
	}
	return nil
}

func toString(value []byte) string {
	for len(value) > 0 && value[len(value)-1] == 0 {
		value = value[:len(value)-1]
	}
	return string(value)
}

// toUint32 returns 0 unless the value has four bytes.
func toUint32(value []byte) uint32 {
	if len(value) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}

// toUint64 returns 0 unless the value has eight bytes.
func toUint64(value []byte) uint64 {
	if len(value) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}
