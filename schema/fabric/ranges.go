package fabric

import "net/netip"

// Ranges writes addresses in their order; those that follow each other become one
// text, as first-last.
func Ranges(addrs []netip.Addr) []string {
	var out []string
	for i := 0; i < len(addrs); {
		j := i
		for j+1 < len(addrs) && addrs[j].Next() == addrs[j+1] {
			j++
		}
		text := addrs[i].String()
		if j > i {
			text += "-" + addrs[j].String()
		}
		out = append(out, text)
		i = j + 1
	}
	return out
}
