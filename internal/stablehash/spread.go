// Package stablehash holds the one hash by which things are spread over others:
// slots over backends, pairs of clusters over gateways, pods over addresses.
// It is the same on every node and in every release, so that all come to the
// same result without talking. It is not meant to withstand an attacker.
package stablehash

// Sum64 is FNV-1a of 64 bits. Its high bits are poor for short texts: Mix them.
func Sum64(text string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 0x100000001b3
	}
	return h
}

// Mix64 is the finalizer of SplitMix64: every bit of x moves every bit of the result.
func Mix64(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
