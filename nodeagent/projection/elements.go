package projection

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

// elements collects the elements of each set and family.
type elements struct {
	buckets map[bucket][]desired.Element
	slots   map[int][][]desired.Element // by family: the slots of each service
}

type bucket struct {
	set    string
	family int
}

func (e *elements) add(elem desired.Element) {
	if e.buckets == nil {
		e.buckets = map[bucket][]desired.Element{}
	}
	key := bucket{elem.Set, elem.Family}
	e.buckets[key] = append(e.buckets[key], elem)
}

// addr adds the address key. In a map, value is the address to which key translates.
func (e *elements) addr(set string, key, value netip.Addr, origin string) {
	text := ""
	if value.IsValid() {
		text = value.String()
	}
	e.add(desired.Element{Set: set, Family: fabric.Family(key), ID: key.String(), Value: text, Origin: origin})
}

// prefix adds the prefix key. In a map, value is the prefix to which key translates.
func (e *elements) prefix(set string, key, value netip.Prefix, origin string) {
	text := ""
	if value.IsValid() {
		text = cidr.Format(value)
	}
	e.add(desired.Element{Set: set, Family: fabric.Family(key.Addr()), ID: cidr.Format(key), Value: text, Origin: origin})
}

// all returns the elements sorted by set, family and key. If several elements have the same key,
// the first one wins. Slots keep the order of their addition: by service, then by number.
func (e *elements) all() []desired.Element {
	total := 0
	for _, list := range e.buckets {
		total += len(list)
	}
	for _, services := range e.slots {
		for _, list := range services {
			total += len(list)
		}
	}
	if total == 0 {
		return nil
	}
	out := make([]desired.Element, 0, total)
	for _, set := range desired.Sets() {
		for _, fam := range []int{4, 6} {
			list := e.buckets[bucket{set.Name, fam}]
			if set.Name == desired.SetSlots {
				for _, slots := range e.slots[fam] {
					out = append(out, slots...)
				}
			} else if set.Name != desired.SetShared {
				slices.SortStableFunc(list, func(a, b desired.Element) int { return strings.Compare(a.ID, b.ID) })
				list = slices.CompactFunc(list, func(a, b desired.Element) bool { return a.ID == b.ID })
			}
			out = append(out, list...)
		}
	}
	return out
}

// serviceKey returns an address, protocol and port in the notation of nft.
func serviceKey(addr netip.Addr, protocol string, port int) string {
	return addr.String() + " . " + strings.ToLower(protocol) + " . " + strconv.Itoa(port)
}

// targetText returns an address and port in the notation of nft.
func targetText(addr netip.Addr, port int) string {
	return addr.String() + " . " + strconv.Itoa(port)
}
