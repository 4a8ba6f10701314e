package driver

import (
	"testing"

	"hawser.dev/hawser/schema/fabric"
)

// TestInitiator checks that both gateways select the same initiator: the gateway that can reach
// the other. A configured endpoint takes precedence over a discovered one.
func TestInitiator(t *testing.T) {
	t.Parallel()
	tests := []struct {
		a, b  []string
		first string // g1 or g2; empty = neither
	}{
		{a: []string{"192.0.2.1"}, b: []string{"192.0.2.2"}, first: "g1"},
		{a: []string{"192.0.2.1"}, first: "g2"},
		{b: []string{"192.0.2.2"}, first: "g1"},
		{},
		{a: []string{"192.0.2.1"}, b: []string{"seen"}, first: "g2"},
		{a: []string{"node:ExternalIP"}, b: []string{"192.0.2.2", "seen"}, first: "g1"},
		{a: []string{"seen"}, b: []string{"seen"}, first: "g1"},
		{a: []string{"seen"}, first: "g2"},
		{b: []string{"seen"}, first: "g1"},
	}
	for _, tt := range tests {
		a, b := &fabric.Gateway{Name: "x", Endpoints: tt.a}, &fabric.Gateway{Name: "y", Endpoints: tt.b}
		one, other := IsInitiator("g1", a, "g2", b), IsInitiator("g2", b, "g1", a)
		if one != (tt.first == "g1") || other != (tt.first == "g2") {
			t.Errorf("%q and %q: g1 initiates %t, g2 initiates %t", tt.a, tt.b, one, other)
		}
	}
}
