package kernel

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// nftESPLink is the whole name of the link, not the beginning of one.
const nftESPLink = desired.IPsecLink + "\x00"

// nftOnlyESP stops VXLAN that ESP should carry and that does not: a forged one
// that comes from the underlay, or ours when there is no way into ESP.
func nftOnlyESP(direction expr.MetaKey) *nftRule {
	return nftNew().dport(unix.IPPROTO_UDP, desired.IPsecPort).notLink(direction, nftESPLink).drop()
}

// nftIntoESP lets that VXLAN go: its addresses are inside the tunnels, and the rest
// of the chain keeps those off links that are none.
func nftIntoESP() *nftRule {
	return nftNew().dport(unix.IPPROTO_UDP, desired.IPsecPort).link(expr.MetaKeyOIFNAME, nftESPLink).accept()
}

// nftNothingElse stops what a remote gateway sends through ESP and is no VXLAN:
// for all else the filter stands behind the VXLAN. Of a link of that name that is
// the host's own it stops nothing else.
func nftNothingElse(f nftFamily) *nftRule {
	return nftNew().link(expr.MetaKeyIIFNAME, nftESPLink).family(f).daddr(f).in(desired.SetTunnels, f).drop()
}
