package stablehash

import (
	"hash/fnv"
	"math/bits"
	"testing"
)

func TestHashIsFNV(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a", "g1/gateway-1", "\x00\xff"} {
		want := fnv.New64a()
		_, _ = want.Write([]byte(text))
		if Sum64(text) != want.Sum64() {
			t.Errorf("%q: got %#x, want %#x", text, Sum64(text), want.Sum64())
		}
	}
}

// TestMixSpreads checks that each input bit flips about half of the output bits. It also checks one
// result, because nodes of different releases must agree.
func TestMixSpreads(t *testing.T) {
	t.Parallel()
	if have := Mix64(1); have != 0x5692161d100b05e5 {
		t.Errorf("Mix64(1) = %#x", have)
	}
	for bit := range 64 {
		flips := 0
		for x := range uint64(1000) {
			flips += bits.OnesCount64(Mix64(x) ^ Mix64(x^1<<bit))
		}
		if flips < 30_000 || flips > 34_000 {
			t.Errorf("bit %d flips %d bits of 64000, about half is fair", bit, flips)
		}
	}
}
