// Package stablehash provides the hash that distributes slots over backends, pairs of clusters over
// gateways, and pods over addresses. Its results are the same on every node and in every release,
// so that all nodes agree without communication. It is not cryptographic.
package stablehash

// Sum64 returns the 64-bit FNV-1a hash of a text. The high bits are weak for short texts; apply
// Mix64 to the result.
func Sum64(text string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 0x100000001b3
	}
	return h
}

// Mix64 applies the finalizer of SplitMix64: every bit of x affects every bit of the result.
func Mix64(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
