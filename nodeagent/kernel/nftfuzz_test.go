package kernel

import (
	"testing"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// FuzzNftElement checks that every accepted text survives a round trip through the kernel's form.
func FuzzNftElement(f *testing.F) {
	for i, e := range nftSampleElements() {
		f.Add(uint8(i), e.ID, e.Value)
	}
	f.Add(uint8(9), "10.0.0.5-10.0.0.1", "")
	f.Add(uint8(9), "::ffff:1.2.3.4", "")
	sets := nftSets()
	f.Fuzz(func(t *testing.T, which uint8, id, value string) {
		s := sets[int(which)%len(sets)]
		elem, err := s.encode(desired.Element{Set: s.Set.Name, Family: s.Family, ID: id, Value: value})
		if err != nil {
			return
		}
		if s.keyText(elem) != id || s.valueText(elem) != value {
			t.Errorf("%s: %q | %q came back as %q | %q", s.Name, id, value, s.keyText(elem), s.valueText(elem))
		}
	})
}

// FuzzNftElementText checks that the decoders do not panic for any element, even if another program
// wrote it.
func FuzzNftElementText(f *testing.F) {
	for _, e := range nftSampleElements()[:12] {
		s := NewElements(NFTOptions{}).sets[e.Set+string(rune('0'+e.Family))]
		elem, err := s.encode(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(elem.key, elem.end, elem.data, elem.chain)
	}
	sets := nftSets()
	f.Fuzz(func(t *testing.T, key, end, data []byte, chain string) {
		_ = nftUserEntry(data, nftUserTag)
		e := nftFromElement(nftables.Element{Key: key, KeyEnd: end, Data: data, Verdict: &nftables.Verdict{Chain: chain}})
		for _, s := range sets {
			_, _ = s.keyText(e), s.valueText(e)
		}
	})
}
