package kernel

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// nftOldEndpointTime is the time for which packets from a peer's previous endpoint are dropped.
// It exceeds a round trip.
const nftOldEndpointTime = time.Second

// dropFromEndpoints drops packets from some endpoints for nftOldEndpointTime. WireGuard sends to
// the source of the latest packet. A packet in flight while a peer is redialled would move the
// endpoint back. On a busy link some packet is always in flight. Without the table it does nothing.
func (ns *Namespace) dropFromEndpoints(endpoints []netip.AddrPort) error {
	if len(endpoints) == 0 {
		return nil
	}
	err := ns.nftCommit(func(b *nftables.Batch) {
		// An existing element keeps its expiry. Each part of a key fills whole words.
		for _, p := range endpoints {
			set := nftables.SetName{Table: nftTable(), Name: desired.SetOldEndpoints + "4"}
			if p.Addr().Is6() {
				set.Name = desired.SetOldEndpoints + "6"
			}
			key := append(append(p.Addr().AsSlice(), nftNetOrder16(p.Port())...), 0, 0)
			b.AddElements(set, 0, []nftables.Element{{Key: key, Timeout: nftOldEndpointTime}})
		}
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
