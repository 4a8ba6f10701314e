package fabric

import "net/netip"

// Twin is a second address of a gateway inside the tunnels: as far from the end of
// its pool as the first is from the beginning. Connections of IPsec with keys of an
// even epoch are between these, so that those of neighbouring epochs can stand beside
// each other. An address outside the pools has none, and is given back.
func Twin(pools []netip.Prefix, a netip.Addr) netip.Addr {
	for _, pool := range pools {
		if !pool.Contains(a) {
			continue
		}
		raw := a.AsSlice()
		for i := range raw {
			host := min(max(8*(i+1)-pool.Bits(), 0), 8)
			raw[i] ^= byte(1<<host - 1)
		}
		twin, _ := netip.AddrFromSlice(raw)
		return twin
	}
	return a
}
