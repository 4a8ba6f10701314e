package kernel

import (
	"testing"

	"hawser.dev/hawser/nodeagent/desired"
)

// Whatever text is taken comes back from the kernel's form unchanged.
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

// Nothing that the kernel (or a hand with CAP_NET_ADMIN) sends makes us panic.
func FuzzNftDecode(f *testing.F) {
	for _, e := range nftSampleElements()[:12] {
		s := NewElements(NFTOptions{}).sets[e.Set+string(rune('0'+e.Family))]
		elem, err := s.encode(e)
		if err != nil {
			f.Fatal(err)
		}
		b := nftNewBatch(0)
		at := len(b.buf)
		b.element(s, elem, func() {})
		f.Add(b.buf[at:])
	}
	f.Add([]byte("0"))
	sets := nftSets()
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = nftTouchesOurs(b)
		_, _ = nftAnswer(b, 0)
		_ = nftUserEntry(b, nftUserTag)
		_ = nftEach(b, func(_ uint16, value []byte) error {
			e, err := nftDecode(value)
			if err != nil {
				return nil
			}
			for _, s := range sets {
				_, _ = s.keyText(e.nftElem), s.valueText(e.nftElem)
			}
			return nil
		})
	})
}
