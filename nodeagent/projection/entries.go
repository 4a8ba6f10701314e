package projection

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// entry is one address, protocol and port with the backends behind it.
type entry struct {
	addr     netip.Addr
	protocol string
	port     int
	targets  []target
	affinity bool
	origin   string
}

// target is one backend of an entry.
type target struct {
	key    string // identity, for the assignment of slots
	addr   netip.Addr
	port   int
	weight int
}

// addEntry adds an entry. An entry without targets has no elements. The reject rule of the pools or
// the blackhole route of the global block handles its packets.
func (v *builder) addEntry(e entry) {
	if len(e.targets) > 0 {
		v.entries = append(v.entries, e)
	}
}

// addEntries converts the entries to elements. If a fabric assigns one address and port to two
// exports, the first by name wins.
func (v *builder) addEntries() {
	slices.SortStableFunc(v.entries, func(a, b entry) int {
		return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.port, b.port))
	})
	v.entries = slices.CompactFunc(v.entries, func(a, b entry) bool {
		return a.addr == b.addr && a.protocol == b.protocol && a.port == b.port
	})
	for i := range v.entries {
		e := &v.entries[i]
		count := slotClass(e.targets)
		if len(e.targets) > count {
			v.problem(e.origin, status.TooManyEndpoints, strconv.Itoa(len(e.targets))+" backends share "+strconv.Itoa(count)+
				" slots, so some get no connections: run fewer and larger pods, or divide them among several Services or clusters")
		}
		fam := fabric.Family(e.addr)
		key := serviceKey(e.addr, e.protocol, e.port)
		v.elements.add(desired.Element{
			Set: desired.SetServices, Family: fam, ID: key,
			Value: desired.PickChain(count, e.affinity) + strconv.Itoa(fam), Origin: e.origin,
		})
		var slots slotSet
		if count == desired.SlotsOne || v.in.Memo == nil {
			slots = e.slots(count)
		} else {
			slots = v.in.Memo.slots(e, count)
		}
		// The slots are in a separate list, because a copy of them is expensive.
		if v.elements.slots == nil {
			v.elements.slots = map[int][][]desired.Element{}
		}
		v.elements.slots[fam] = append(v.elements.slots[fam], slots.elements)
		v.elements.addr(desired.SetICMPEcho, e.addr, slots.first, e.origin)
	}
}

func assign(count int, targets []target) []int {
	if len(targets) == 1 {
		return make([]int, count)
	}
	backends := make([]Backend, len(targets))
	for i, t := range targets {
		backends[i] = Backend{Key: t.key, Weight: t.weight}
	}
	return Slots(count, backends)
}

// slotIDs returns the keys of all slots. They share the memory of one string.
func slotIDs(key string, count int) []string {
	var text strings.Builder
	text.Grow(count * (len(key) + len(" . 1023")))
	ends := make([]int, count)
	for i := range count {
		text.WriteString(key)
		text.WriteString(" . ")
		text.WriteString(strconv.Itoa(i))
		ends[i] = text.Len()
	}
	all, from := text.String(), 0
	ids := make([]string, count)
	for i, end := range ends {
		ids[i] = all[from:end]
		from = end
	}
	return ids
}

// slotClass returns the number of slots that the backends share.
func slotClass(targets []target) int {
	if len(targets) == 1 {
		return desired.SlotsOne
	}
	return desired.SlotsMany
}

// share is the weight of a cluster in an export.
type share struct {
	cluster string
	weight  int
}

// selectClusters applies a policy to the ready clusters, which are sorted by name. A cluster that
// is not in the weights or the order gets connections only if no listed cluster is ready. An export
// that is ready in any cluster is never refused.
func selectClusters(b fabric.Balance, own string, ready []string) []share {
	if len(ready) == 0 {
		return nil
	}
	switch b.Policy {
	case fabric.LocalFirst:
		if slices.Contains(ready, own) {
			return []share{{own, 1}}
		}
	case fabric.Failover:
		for _, name := range b.Order {
			if slices.Contains(ready, name) {
				return []share{{name, 1}}
			}
		}
		return []share{{ready[0], 1}}
	case fabric.Weighted:
		if shares := weighted(b.Weights, ready); len(shares) > 0 {
			return shares
		}
	}
	shares := make([]share, len(ready))
	for i, name := range ready {
		shares[i] = share{name, 1}
	}
	return shares
}

// weighted returns the ready clusters that have a weight.
func weighted(weights map[string]int, ready []string) []share {
	var shares []share
	for _, name := range ready {
		if weight, named := weights[name]; named {
			shares = append(shares, share{name, max(weight, 1)})
		}
	}
	return shares
}
