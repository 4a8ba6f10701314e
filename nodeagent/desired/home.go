package desired

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
)

// homeDigits are the bits of a mark that hold the three hexadecimal digits of a
// node's number, the first one first. They leave out what others' routing rules ask
// for: 0x00ff0000 (Tailscale, Calico), 0x00000f00 (Cilium) and 0x00000080 (the VPC CNI
// of AWS). Packets carry such a mark between prerouting and forward only.
var homeDigits = [3]uint{24, 12, 0}

// HomeDigits are the bits of all of them.
const HomeDigits = 0x0f00f00f

// HomeMark is the mark of packets that go home to the node of a number, 0 to
// MostHomes; 0 is this node itself.
func HomeMark(number int) uint32 {
	mark := uint32(MarkHome)
	for i, shift := range homeDigits {
		mark |= uint32(number>>(8-4*i)&0xf) << shift
	}
	return mark
}

// HomeRules are the rules by which a packet with HomeMark(number) finds its table. They
// are a tree of three levels, and nodes share the upper ones, so that no packet meets
// more than 48 of them, however many nodes there are. Rules of one priority stand for
// one place of the tree.
func HomeRules(number, table int, ipv6 bool, origin string) []Rule {
	mark := HomeMark(number)
	first, second := number>>8, number>>4
	priorities := [3]int{RuleHomes, RuleHomes + 1 + first, RuleHomes + 17 + second}
	rules := make([]Rule, len(priorities))
	for i, shift := range homeDigits {
		mask := MaskHome | uint32(0xf)<<shift // never 0, which the kernel takes for any mark where it deletes
		rules[i] = Rule{Priority: priorities[i], IPv6: ipv6, Mark: mark & mask, Mask: mask, Origin: origin}
	}
	rules[0].Goto, rules[1].Goto, rules[2].Table = priorities[1], priorities[2], table
	return rules
}

// HomeID is how a node is known by the frames that it sends on NodeLink: the last four
// bytes of its hardware address as the kernel holds them in a mark, in decimal. It is
// empty for text that is no hardware address.
func HomeID(mac string) string {
	raw, err := hex.DecodeString(strings.ReplaceAll(mac, ":", ""))
	if err != nil || len(raw) != 6 {
		return ""
	}
	return strconv.FormatUint(uint64(binary.NativeEndian.Uint32(raw[2:])), 10)
}
