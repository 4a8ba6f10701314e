package kernel

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// nftAttrs writes netlink attributes. Numbers are in network byte order, as
// nf_tables wants them; texts end with a zero byte.
type nftAttrs struct{ buf []byte }

const nftAttrHeader = 4

func nftAlign(n int) int { return (n + 3) &^ 3 }

// open starts an attribute and gives where it starts, for close.
func (a *nftAttrs) open(typ uint16) int {
	at := len(a.buf)
	a.buf = append(a.buf, 0, 0, 0, 0)
	binary.NativeEndian.PutUint16(a.buf[at+2:], typ)
	return at
}

// shut writes the length of the attribute that starts at at, and pads.
func (a *nftAttrs) shut(at int) {
	binary.NativeEndian.PutUint16(a.buf[at:], uint16(len(a.buf)-at))
	for len(a.buf)%4 != 0 {
		a.buf = append(a.buf, 0)
	}
}

func (a *nftAttrs) bytes(typ uint16, value []byte) {
	at := a.open(typ)
	a.buf = append(a.buf, value...)
	a.shut(at)
}

func (a *nftAttrs) text(typ uint16, value string) {
	at := a.open(typ)
	a.buf = append(a.buf, value...)
	a.buf = append(a.buf, 0)
	a.shut(at)
}

func (a *nftAttrs) u32(typ uint16, value uint32) {
	at := a.open(typ)
	a.buf = binary.BigEndian.AppendUint32(a.buf, value)
	a.shut(at)
}

// nest writes an attribute that holds what inside writes.
func (a *nftAttrs) nest(typ uint16, inside func()) {
	at := a.open(typ | unix.NLA_F_NESTED)
	inside()
	a.shut(at)
}

// data writes a value inside the attribute typ, as registers and set elements
// have it.
func (a *nftAttrs) data(typ uint16, value []byte) {
	at := a.open(typ | unix.NLA_F_NESTED)
	a.bytes(unix.NFTA_DATA_VALUE, value)
	a.shut(at)
}

// nftEach calls visit for each attribute of b, with the flags removed from the type.
func nftEach(b []byte, visit func(typ uint16, value []byte) error) error {
	for len(b) >= nftAttrHeader {
		size := int(binary.NativeEndian.Uint16(b))
		if size < nftAttrHeader || size > len(b) {
			return fmt.Errorf("netlink attribute of %d bytes in a space of %d", size, len(b))
		}
		typ := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		if err := visit(typ, b[nftAttrHeader:size]); err != nil {
			return err
		}
		b = b[min(nftAlign(size), len(b)):]
	}
	return nil
}

// nftFind gives the value of the first attribute of that type, or nil.
func nftFind(b []byte, typ uint16) []byte {
	for len(b) >= nftAttrHeader {
		size := int(binary.NativeEndian.Uint16(b))
		if size < nftAttrHeader || size > len(b) {
			return nil
		}
		if binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == typ {
			return b[nftAttrHeader:size]
		}
		b = b[min(nftAlign(size), len(b)):]
	}
	return nil
}

func nftText(value []byte) string {
	for len(value) > 0 && value[len(value)-1] == 0 {
		value = value[:len(value)-1]
	}
	return string(value)
}

func nftUint32(value []byte) uint32 {
	if len(value) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}
