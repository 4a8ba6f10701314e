package kernel

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
)

// nftFormerFor is how long nothing comes in from where a peer was: longer than a packet
// takes there and back.
const nftFormerFor = time.Second

// nftFormer drops what comes from where a peer of WireGuard was until a moment ago.
func nftFormer(f nftFamily) *nftRule {
	return nftNew().family(f).l4proto(unix.IPPROTO_UDP).saddr(f).transport(0, 2, f.behind).
		in(desired.SetFormer, f).dropAs(desired.DropFormer)
}

// leave drops what comes from the given places for nftFormerFor. WireGuard sends to where the
// latest packet came from: one that is on its way when a peer is sent elsewhere would call it
// back, and on a busy link there always is one. Without the table nothing is done.
func (ns *Namespace) leave(places []netip.AddrPort) error {
	if len(places) == 0 {
		return nil
	}
	err := ns.nftCommit(func(b *nftBatch) {
		for _, f := range nftFamilies() {
			b.former(f, places)
		}
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// former adds the places of a family. One that is there already keeps its end.
func (b *nftBatch) former(f nftFamily, places []netip.AddrPort) {
	for _, p := range places {
		if p.Addr().Is6() != (f.size == 16) {
			continue
		}
		b.message(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, func() {
			b.text(unix.NFTA_SET_ELEM_LIST_TABLE, desired.TableName)
			b.text(unix.NFTA_SET_ELEM_LIST_SET, desired.SetFormer+f.digit)
			b.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
				// Each part of a key fills whole words.
				b.expiring(append(append(p.Addr().AsSlice(), nftNetOrder16(p.Port())...), 0, 0), nftFormerFor)
			})
		})
	}
}
