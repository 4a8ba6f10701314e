package kernel

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// nftFormerFor is how long nothing comes in from where a peer was: longer than a packet
// takes there and back.
const nftFormerFor = time.Second

// dropFromEndpoints drops packets from some endpoints for nftFormerFor. WireGuard sends to where the
// latest packet came from: one that is on its way when a peer is sent elsewhere would call it
// back, and on a busy link there always is one. Without the table nothing is done.
func (ns *Namespace) dropFromEndpoints(places []netip.AddrPort) error {
	if len(places) == 0 {
		return nil
	}
	err := ns.nftCommit(func(b *nftables.Batch) {
		// A place that is there already keeps its end. Each part of a key fills whole words.
		for _, p := range places {
			set := nftables.SetName{Table: nftTable(), Name: desired.SetOldEndpoints + "4"}
			if p.Addr().Is6() {
				set.Name = desired.SetOldEndpoints + "6"
			}
			key := append(append(p.Addr().AsSlice(), nftNetOrder16(p.Port())...), 0, 0)
			b.AddElements(set, 0, []nftables.Element{{Key: key, Timeout: nftFormerFor}})
		}
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
