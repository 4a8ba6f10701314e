package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/desired"
)

// nftElement is one element as stored in the kernel. For ranges, key and end are the first and the
// last value, both included.
type nftElement struct {
	key, end []byte
	data     []byte
	chain    string // verdict maps: the target chain
}

const nftConcatSeparator = " . "

// encode parses an element in the notation of desired.Element. It rejects a notation that the
// kernel would list differently, because the two would never be equal.
func (s nftSet) encode(e desired.Element) (nftElement, error) {
	elem, err := s.encodeKey(e.ID)
	if err != nil {
		return nftElement{}, fmt.Errorf("key %q: %w", e.ID, err)
	}
	switch {
	case !s.isMap():
		if e.Value != "" {
			return nftElement{}, fmt.Errorf("value %q: a set has no values", e.Value)
		}
		return elem, nil
	case s.isVerdict():
		elem.chain = e.Value
		if !s.isPick(e.Value) {
			return nftElement{}, fmt.Errorf("value %q is not a chain that picks a backend of IPv%d", e.Value, s.Family)
		}
		return elem, nil
	}
	first, last, err := s.encodeParts(e.Value, s.Data, s.Prefixes)
	if err != nil {
		return nftElement{}, fmt.Errorf("value %q: %w", e.Value, err)
	}
	elem.data = first
	if s.Prefixes {
		elem.data = append(first, last...)
	}
	if text := s.valueText(elem); text != e.Value {
		return nftElement{}, fmt.Errorf("value %q must be written %q", e.Value, text)
	}
	return elem, nil
}

func (s nftSet) encodeKey(id string) (nftElement, error) {
	first, last, err := s.encodeParts(id, s.Key, s.Interval)
	if err != nil {
		return nftElement{}, err
	}
	elem := nftElement{key: first, end: last}
	if text := s.keyText(elem); text != id {
		return nftElement{}, fmt.Errorf("must be written %q", text)
	}
	return elem, nil
}

// isPick reports whether name is one of the chains that pick a backend.
func (s nftSet) isPick(name string) bool {
	name, ok := strings.CutSuffix(name, strconv.Itoa(s.Family))
	if !ok {
		return false
	}
	for _, slots := range []int{desired.SlotsOne, desired.SlotsMany} {
		if name == desired.PickChain(slots, false) || name == desired.PickChain(slots, true) {
			return true
		}
	}
	return false
}

// encodeParts returns the first and last value of a key or data. They are equal without ranges.
func (s nftSet) encodeParts(text string, parts []desired.Type, ranges bool) (first, last []byte, err error) {
	fields := strings.Split(text, nftConcatSeparator)
	if len(fields) != len(parts) {
		return nil, nil, fmt.Errorf("has %d parts, not %d", len(fields), len(parts))
	}
	for i, field := range fields {
		low, high, err := s.encodePart(field, parts[i], ranges)
		if err != nil {
			return nil, nil, err
		}
		width := int(s.width(parts[i], len(parts) > 1))
		first = append(append(first, low...), make([]byte, width-len(low))...)
		last = append(append(last, high...), make([]byte, width-len(high))...)
	}
	return first, last, nil
}

func (s nftSet) encodePart(word string, part desired.Type, ranges bool) (low, high []byte, err error) {
	switch part {
	case desired.TypeAddr, desired.TypeAddr4, desired.TypeAddr6:
		return nftEncodeAddress(word, nftAddressFamily(part, s.Family), ranges)
	case desired.TypeProto:
		number, err := nftProtocol(word)
		return []byte{number}, []byte{number}, err
	case desired.TypePort:
		return nftEncodePort(word, ranges)
	case desired.TypeMark:
		n, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return nil, nil, fmt.Errorf("mark %q is not a 32-bit number", word)
		}
		b := nftHostOrder(uint32(n))
		return b, b, nil
	case desired.TypeIfname:
		if word == "" || len(word) >= unix.IFNAMSIZ {
			return nil, nil, fmt.Errorf("device %q has an empty or too long name", word)
		}
		return []byte(word), []byte(word), nil
	}
	return nil, nil, fmt.Errorf("part of type %s cannot be written", part)
}

// nftEncodePort parses a port or first-last, for a range that another program wrote.
func nftEncodePort(word string, ranges bool) (low, high []byte, err error) {
	first, last, isRange := strings.Cut(word, "-")
	if !isRange || !ranges {
		first, last = word, word
	}
	from, err := strconv.ParseUint(first, 10, 16)
	to, errTo := strconv.ParseUint(last, 10, 16)
	if err != nil || errTo != nil || to < from {
		return nil, nil, fmt.Errorf("port %q is not a number from 0 to 65535", word)
	}
	return nftNetOrder16(uint16(from)), nftNetOrder16(uint16(to)), nil
}

// nftEncodeAddress parses an address, a prefix, or first-last. The last form names a range that
// another program wrote, so that it can be deleted.
func nftEncodeAddress(word string, family int, ranges bool) (low, high []byte, err error) {
	var first, last netip.Addr
	if from, to, ok := strings.Cut(word, "-"); ranges && ok {
		var errTo error
		first, err = netip.ParseAddr(from)
		last, errTo = netip.ParseAddr(to)
		err = errors.Join(err, errTo)
	} else if ranges && strings.Contains(word, "/") {
		var p netip.Prefix
		p, err = netip.ParsePrefix(word)
		if err == nil && p != p.Masked() {
			return nil, nil, fmt.Errorf("prefix %s has host bits set", word)
		}
		first, last = p.Addr(), cidr.Last(p)
	} else {
		first, err = netip.ParseAddr(word)
		last = first
	}
	if err != nil {
		return nil, nil, err
	}
	if (family == 4) != first.Is4() || (family == 4) != last.Is4() || first.Zone() != "" || last.Zone() != "" {
		return nil, nil, fmt.Errorf("%s is no IPv%d address", word, family)
	}
	if last.Less(first) {
		return nil, nil, fmt.Errorf("range %s ends before it begins", word)
	}
	return first.AsSlice(), last.AsSlice(), nil
}

// nftProtocols lists the names of the protocols with ports.
var nftProtocols = [...]struct {
	name   string
	number byte
}{{"tcp", unix.IPPROTO_TCP}, {"udp", unix.IPPROTO_UDP}, {"sctp", unix.IPPROTO_SCTP}, {"dccp", unix.IPPROTO_DCCP}}

func nftProtocol(name string) (byte, error) {
	for _, p := range nftProtocols {
		if p.name == name {
			return p.number, nil
		}
	}
	n, err := strconv.ParseUint(name, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("unknown protocol %q", name)
	}
	return byte(n), nil
}

func (s nftSet) keyText(e nftElement) string {
	return string(s.appendParts(make([]byte, 0, 64), s.Key, e.key, e.end))
}

func (s nftSet) valueText(e nftElement) string {
	switch {
	case !s.isMap():
		return ""
	case s.isVerdict():
		return e.chain
	case s.Prefixes:
		half := len(e.data) / 2
		return string(s.appendParts(make([]byte, 0, 64), s.Data, e.data[:half], e.data[half:]))
	}
	return string(s.appendParts(make([]byte, 0, 64), s.Data, e.data, e.data))
}

// appendParts writes the text of a key or of data.
func (s nftSet) appendParts(text []byte, parts []desired.Type, first, last []byte) []byte {
	for i, part := range parts {
		if i > 0 {
			text = append(text, nftConcatSeparator...)
		}
		size := int(nftTypeOf(part, s.Family).Bytes)
		width := int(s.width(part, len(parts) > 1))
		if len(first) < width || len(last) < width {
			return append(text, "(short)"...)
		}
		text = s.appendPart(text, part, first[:size], last[:size])
		first, last = first[width:], last[width:]
	}
	return text
}

func (s nftSet) appendPart(text []byte, part desired.Type, low, high []byte) []byte {
	switch part {
	case desired.TypeAddr, desired.TypeAddr4, desired.TypeAddr6:
		return nftAppendRange(text, low, high)
	case desired.TypeProto:
		for _, p := range nftProtocols {
			if p.number == low[0] {
				return append(text, p.name...)
			}
		}
		return strconv.AppendUint(text, uint64(low[0]), 10)
	case desired.TypePort:
		text = strconv.AppendUint(text, uint64(binary.BigEndian.Uint16(low)), 10)
		if !slices.Equal(low, high) {
			text = strconv.AppendUint(append(text, '-'), uint64(binary.BigEndian.Uint16(high)), 10)
		}
		return text
	case desired.TypeIfname:
		name, _, _ := bytes.Cut(low, []byte{0})
		text = append(text, name...)
		if !slices.Equal(low, high) { // a range that another program wrote
			text = append(text, '*')
		}
		return text
	}
	return strconv.AppendUint(text, uint64(binary.NativeEndian.Uint32(low)), 10)
}

// nftAppendRange writes an address, a prefix or first-last.
func nftAppendRange(text, low, high []byte) []byte {
	first, _ := netip.AddrFromSlice(low)
	text = first.AppendTo(text)
	if slices.Equal(low, high) {
		return text
	}
	bits := 0
	for bits < len(low)*8 && (low[bits/8]^high[bits/8])&(0x80>>(bits%8)) == 0 {
		bits++
	}
	last, _ := netip.AddrFromSlice(high)
	if p := netip.PrefixFrom(first, bits); p.Masked().Addr() == first && cidr.Last(p) == last {
		return strconv.AppendInt(append(text, '/'), int64(bits), 10)
	}
	return last.AppendTo(append(text, '-'))
}
