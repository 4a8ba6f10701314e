package driver

import (
	"testing"

	"hawser.dev/hawser/schema/fabric"
)

// TestBegins: both ends come to the same one of them, the one that can reach the other; what
// is written counts before what is found.
func TestBegins(t *testing.T) {
	t.Parallel()
	tests := []struct {
		a, b  []string
		first string // of g1 and g2; empty = neither
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
			t.Errorf("%q and %q: g1 begins %t, g2 begins %t", tt.a, tt.b, one, other)
		}
	}
}
