package kernel

import (
	"net/netip"
	"testing"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/desired"
)

const nftBenchElements = 10_000

// nftManySlots returns n slots, as in the largest map of a node with many exports.
func nftManySlots(n int) []desired.Element {
	elements := make([]desired.Element, n)
	vip := netip.MustParseAddr("243.0.0.0")
	for i := range elements {
		if i%desired.SlotsMany == 0 {
			vip = vip.Next()
		}
		slot := string(nftDecimal(i % desired.SlotsMany))
		elements[i] = desired.Element{
			Set: desired.SetSlots, Family: 4, ID: vip.String() + " . tcp . 80 . " + slot, Value: "242.2.0." + string(nftDecimal(i%64)) + " . 8080",
		}
	}
	return elements
}

func nftDecimal(n int) []byte {
	if n < 10 {
		return []byte{byte('0' + n)}
	}
	return append(nftDecimal(n/10), byte('0'+n%10))
}

func nftBenchNS(b *testing.B) (*nftNS, []desired.Element) {
	ns := nftNewNS(b)
	nftApplyTable(b, ns, nftSampleTable())
	elements := nftManySlots(nftBenchElements)
	nftMustConverge(b, ns, elements)
	return ns, elements
}

func BenchmarkNftObserve(b *testing.B) {
	ns, _ := nftBenchNS(b)
	kind := NewElements(ns.opts())
	for b.Loop() {
		if have, err := kind.Observe(b.Context()); err != nil || len(have) != nftBenchElements {
			b.Fatal(len(have), err)
		}
	}
}

func BenchmarkNftStamp(b *testing.B) {
	ns, _ := nftBenchNS(b)
	kind := NewElements(ns.opts())
	for b.Loop() {
		if _, err := kind.Version(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNftObserveTable(b *testing.B) {
	ns, _ := nftBenchNS(b)
	kind := NewTables(ns.opts())
	for b.Loop() {
		if have, err := kind.Observe(b.Context()); err != nil || len(have) != 1 {
			b.Fatal(have, err)
		}
	}
}

func BenchmarkNftChangeOne(b *testing.B) {
	ns, elements := nftBenchNS(b)
	kind := NewElements(ns.opts())
	values := []string{"242.2.1.1 . 80", "242.2.1.2 . 80"}
	for i := 0; b.Loop(); i++ {
		e := elements[0]
		e.Value = values[i%2]
		change := diff.Change[desired.Element]{Op: diff.Update, Key: e.Key(), Want: e, Have: elements[0]}
		if err := kind.Apply(b.Context(), []diff.Change[desired.Element]{change}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNftAddAll(b *testing.B) {
	ns, elements := nftBenchNS(b)
	kind := NewElements(ns.opts())
	changes, err := diff.Compute(elements, nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.StopTimer()
		nftMustConverge(b, ns, nil)
		b.StartTimer()
		if err := kind.Apply(b.Context(), changes); err != nil {
			b.Fatal(err)
		}
	}
}
