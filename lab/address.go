package lab

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
)

var errExhausted = errors.New("no address left")

// nth returns the nth address of a prefix, starting at 0.
func nth(prefix netip.Prefix, n int) (netip.Addr, error) {
	base := prefix.Masked().Addr()
	raw := base.AsSlice()
	sum := new(big.Int).Add(new(big.Int).SetBytes(raw), big.NewInt(int64(n)))
	if sum.BitLen() > base.BitLen() {
		return netip.Addr{}, errExhausted
	}
	addr, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, len(raw))))
	if !prefix.Contains(addr) {
		return netip.Addr{}, errExhausted
	}
	return addr, nil
}

// nodePrefix returns the kth node's part of a cluster's pod prefix. It is a /24 (IPv6: a /112) if
// the prefix has room for 16 of them, otherwise a sixteenth of the prefix.
func nodePrefix(cidr netip.Prefix, k int) (netip.Prefix, error) {
	bits, maxBits := 24, 30
	if cidr.Addr().Is6() {
		bits, maxBits = 112, 126
	}
	bits = min(max(bits, cidr.Bits()+4), maxBits)
	if bits < cidr.Bits() {
		return netip.Prefix{}, fmt.Errorf("share out %s: too small", cidr)
	}
	if space := bits - cidr.Bits(); space < 31 && k >= 1<<space {
		return netip.Prefix{}, fmt.Errorf("share out %s: room for %d nodes only", cidr, 1<<space)
	}
	raw := cidr.Masked().Addr().AsSlice()
	step := new(big.Int).Lsh(big.NewInt(int64(k)), uint(len(raw)*8-bits))
	sum := step.Add(step, new(big.Int).SetBytes(raw))
	addr, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, len(raw))))
	return netip.PrefixFrom(addr, bits), nil
}

// freeAddr returns the first address of a prefix, starting at the nth, that is in none of the sets.
// If no such address is left, it ignores the later sets.
func freeAddr(prefix netip.Prefix, n int, taken ...map[netip.Addr]bool) (netip.Addr, error) {
	for sets := len(taken); sets > 0; sets-- {
		for i := n; ; i++ {
			addr, err := nth(prefix, i)
			if err != nil {
				break
			}
			if addr.Is4() && prefix.Bits() < 31 && !prefix.Contains(addr.Next()) {
				break // broadcast
			}
			if !slices.ContainsFunc(taken[:sets], func(set map[netip.Addr]bool) bool { return set[addr] }) {
				return addr, nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("take an address of %s: %w", prefix, errExhausted)
}

// firstOf returns the first prefix of each address family, IPv4 before IPv6.
func firstOf(prefixes []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, six := range []bool{false, true} {
		if i := slices.IndexFunc(prefixes, func(p netip.Prefix) bool { return p.Addr().Is6() == six }); i >= 0 {
			out = append(out, prefixes[i])
		}
	}
	return out
}

// share returns a node's part of the cluster's pod prefixes, one per address family. A node keeps
// its part, as in Kubernetes. A new node gets a part of the first prefix, or of the newest prefix
// if newest is set.
func (s *state) share(n *node, slot int, newest bool) ([]netip.Prefix, error) {
	prefixes := slices.Clone(n.clusterPodCIDRs)
	if newest {
		slices.Reverse(prefixes)
	}
	var out []netip.Prefix
	for _, cidr := range firstOf(prefixes) {
		share, err := nodePrefix(cidr, slot)
		if err != nil {
			return nil, err
		}
		for _, previous := range s.Shares[n.id()] {
			if previous.Addr().Is6() == cidr.Addr().Is6() {
				share = previous
			}
		}
		out = append(out, share)
	}
	s.Shares[n.id()] = out
	return out, nil
}

// chooseLAN selects the prefix of the nodes' network. Like in kind, it is the same in every
// cluster. It does not overlap a prefix of the topology.
func chooseLAN(t topology) (netip.Prefix, error) {
	candidates := []string{"172.18.0.0/16", "172.19.0.0/16", "172.31.0.0/16", "192.168.0.0/16", "100.96.0.0/16", "10.250.0.0/16"}
	for _, text := range candidates {
		lan := netip.MustParsePrefix(text)
		if !t.uses(lan) {
			return lan, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("choose a network for the nodes: the topology overlaps all of %v", candidates)
}

func (t topology) uses(prefix netip.Prefix) bool {
	for _, c := range t.clusters {
		for _, p := range slices.Concat(c.podCIDRs, c.serviceCIDRs) {
			if p.Overlaps(prefix) {
				return true
			}
		}
		for _, g := range c.gateways {
			for _, endpoint := range g.Endpoints {
				if addr, _, err := literal(endpoint); err == nil && addr.IsValid() && prefix.Contains(addr) {
					return true
				}
			}
		}
	}
	return false
}

// families reports the address families of a cluster's prefixes. Without prefixes it is IPv4.
func families(prefixes []netip.Prefix) (four, six bool) {
	for _, p := range prefixes {
		four, six = four || p.Addr().Is4(), six || p.Addr().Is6()
	}
	return four || !six, six
}

func sameFamily(a netip.Addr) func(netip.Addr) bool {
	return func(b netip.Addr) bool { return a.Is6() == b.Is6() }
}

// lanGateway returns the address of a cluster's bridge in the nodes' network.
func lanGateway(w *desiredLab, six bool) netip.Addr {
	if six {
		return w.lan6.Addr().Next()
	}
	return w.lan.Addr().Next()
}
