package fabric

import "testing"

// TestPSK checks that both ends of a link derive the same pre-shared key. Different links and
// epochs have different keys.
func TestPSK(t *testing.T) {
	t.Parallel()
	seen := map[Secret]string{}
	gateways := []string{"g1/a", "g1/b", "g2/a", "g3/a", "g3/ab"}
	for _, seed := range []byte{1, 2} {
		e := EpochKeys{PSKSeed: Secret{seed}}
		for i, a := range gateways {
			for _, b := range gateways[:i] {
				one, err := e.PSK(a, b)
				if err != nil {
					t.Fatal(err)
				}
				other, err := e.PSK(b, a)
				if err != nil || one != other {
					t.Errorf("%s and %s derive different keys (%v)", a, b, err)
				}
				if twin, found := seen[one]; found {
					t.Errorf("%s and %s have the key of %s", a, b, twin)
				}
				seen[one] = a + " and " + b
			}
		}
	}
}
