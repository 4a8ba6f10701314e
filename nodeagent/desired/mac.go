package desired

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"
)

// HardwareAddr derives the address of a node or gateway on a VXLAN from a name
// that no other one has, in the locally administered unicast range (IEEE 802).
// Equal addresses at two places would make the kernel drop frames as loops.
func HardwareAddr(name string) string {
	sum := sha256.Sum256([]byte("hawser " + name))
	sum[0] = sum[0]&^0x01 | 0x02
	parts := make([]string, 6)
	for i := range parts {
		parts[i] = hex.EncodeToString(sum[i : i+1])
	}
	return strings.Join(parts, ":")
}

// LinkLocal gives the IPv6 link-local address that belongs to a hardware address
// (RFC 4291, appendix A). It is not valid for text that is none.
func LinkLocal(mac string) netip.Addr {
	raw, err := hex.DecodeString(strings.ReplaceAll(mac, ":", ""))
	if err != nil || len(raw) != 6 {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80, 8: raw[0] ^ 0x02, 9: raw[1], 10: raw[2], 11: 0xff, 12: 0xfe, 13: raw[3], 14: raw[4], 15: raw[5],
	})
}
