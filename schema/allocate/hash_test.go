package allocate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"hawser.dev/hawser/internal/cidr"
)

// TestNamesChoose checks that concurrent branches seldom allocate the same block or address. The
// choice of a branch does not depend on the next free block or address.
func TestNamesChoose(t *testing.T) {
	t.Parallel()
	base := newTopology([]int{1, 2, 3}, []int{1, 2, 3})
	lock, list := Allocate(base, nil)
	noErrors(t, list)
	const tries = 40
	clusters, vips, tunnels := 0, 0, 0
	for i := range tries {
		one, list := Allocate(newTopology([]int{1, 2, 3, 10 + i}, []int{1, 2, 3, 50 + 4*i + 1}), lock)
		noErrors(t, list)
		two, list := Allocate(newTopology([]int{1, 2, 3, 100 + i}, []int{1, 2, 3, 250 + 4*i + 1}), lock)
		noErrors(t, list)
		a, b := fmt.Sprintf("c%d", 10+i), fmt.Sprintf("c%d", 100+i)
		if (10+i)%7 != 0 && (100+i)%7 != 0 && one.Blocks(a)[0].Overlaps(two.Blocks(b)[0]) {
			clusters++
		}
		if one.Gateway(a, a+"-a")[0] == two.Gateway(b, b+"-a")[0] {
			tunnels++
		}
		x, y := 50+4*i+1, 250+4*i+1
		if one.VIPs(fmt.Sprintf("ns%d/e%d", x%3, x))[0] == two.VIPs(fmt.Sprintf("ns%d/e%d", y%3, y))[0] {
			vips++
		}
	}
	if clusters > 3 || vips > 1 || tunnels > 1 {
		t.Errorf("of %d pairs of branches %d chose overlapping blocks, %d the same clusterset IP, %d the same tunnel address",
			tries, clusters, vips, tunnels)
	}
}

// TestChoosingLeavesRoom checks that allocation by name wastes no room compared with allocation of
// the lowest free part. This always holds if all blocks are allocated at once. If blocks are added
// one by one, it holds for equal sizes, or up to a quarter of the pool.
func TestChoosingLeavesRoom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3))
		pool := netip.PrefixFrom(netip.MustParseAddr("242.0.0.0"), 8+r.IntN(9))
		room := 1 << cidr.HostBits(pool)
		limit := room / 4
		equal := 0
		if r.IntN(2) == 0 {
			limit, equal = room, 8+r.IntN(cidr.HostBits(pool)-8)
		}
		packed, chosen := newPrefixPool(pool), newPrefixPool(pool)
		for i, used := 0, 0; i < 2000; i++ {
			host := equal
			if equal == 0 {
				host = 6 + r.IntN(cidr.HostBits(pool)-8)
			}
			if used += 1 << host; used > limit {
				break
			}
			p, ok := packed.find(host)
			if !ok {
				break
			}
			packed.markUsed(p)
			if p, ok = chosen.choose(host, fmt.Sprint(seed, " ", i)); !ok {
				t.Fatalf("seed %d: no room for a /%d in %s, number %d, which is %d of %d", seed, 32-host, pool, i, used, room)
			}
			if _, clash := chosen.overlap(p); clash || !cidr.Contains(pool, p) {
				t.Fatalf("seed %d: %s overlaps an allocated part or lies outside %s", seed, p, pool)
			}
			chosen.markUsed(p)
		}
	}
}

// TestAllAtOnceFits checks that a set of blocks that fills the pool exactly can be allocated.
func TestAllAtOnceFits(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 4))
		var numbers []int
		for i := range 30 {
			if i%7 != 0 {
				numbers = append(numbers, i)
			}
		}
		numbers = numbers[:3+r.IntN(len(numbers)-3)]
		top := newTopology(numbers, nil)
		var sizes []int
		b := &blockAllocator{allocator: &allocator{top: top}, prefixPool: newPrefixPool(top.Spec.Globalnet.CIDR), addrCounts: map[string]int{}}
		for i := range top.Spec.Clusters {
			sizes = append(sizes, b.blockSizes(&top.Spec.Clusters[i])[0])
		}
		total := 0
		for _, s := range sizes {
			total += 1 << s
		}
		top.Spec.Globalnet.CIDR = netip.PrefixFrom(netip.MustParseAddr("242.0.0.0"), 32-cidr.Log2Ceil(total))
		lock, list := Allocate(top, nil)
		noErrors(t, list)
		for i, c := range top.Spec.Clusters {
			if have := lock.Blocks(c.Name)[0]; cidr.HostBits(have) < sizes[i] {
				t.Errorf("seed %d: %s has %s, of %d bits in %s", seed, c.Name, have, sizes[i], top.Spec.Globalnet.CIDR)
			}
		}
	}
}

func TestNthPart(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   string
		bits int
		nth  uint64
		want string
	}{
		{"242.0.0.0/8", 7, 0, "242.0.0.0/15"}, {"242.0.0.0/8", 7, 127, "242.254.0.0/15"}, {"242.0.0.0/8", 9, 3, "242.1.128.0/17"},
		{"fd00::/48", 16, 258, "fd00:0:0:102::/64"}, {"fd00::/120", 8, 255, "fd00::ff/128"}, {"10.0.0.4/30", 2, 3, "10.0.0.7/32"},
	}
	for _, tt := range tests {
		if have := cidr.Subnet(netip.MustParsePrefix(tt.in), tt.bits, tt.nth); have.String() != tt.want {
			t.Errorf("part %d of %s is %s, want %s", tt.nth, tt.in, have, tt.want)
		}
	}
}
