package migration

import (
	"testing"
	"time"
)

// TestAside: both ends go over the other tunnel when one of them asks for it, and back.
func TestAside(t *testing.T) {
	t.Parallel()
	for _, want := range []TunnelID{{Driver: "ipsec", Epoch: 1}, {Driver: "ipsec", Epoch: 2}, of(1)} {
		for leader := range 2 {
			w := two{now: time.Unix(0, 0).UTC()}
			for i := range w.ends {
				w.ends[i] = NewPair(want, nil, uint64(i+1)<<20, w.now)
			}
			w.run(10 * time.Second)
			w.ends[leader].Secondary(true, w.now)
			w.run(time.Minute)
			for i, p := range w.ends {
				if begun, done := p.OverSecondary(); !begun || !done || p.Use() != want.counterpart() {
					t.Errorf("%s, end %d of leader %d: begun %t, done %t with %s over %s", want, i, leader, begun, done, p.Tunnels(), p.Use())
				}
			}
			if why := w.ends[leader].Progress(w.now).Why; why != "another endpoint is taken" {
				t.Errorf("%s: %q", want, why)
			}
			w.ends[leader].Secondary(false, w.now)
			w.run(time.Minute)
			for i, p := range w.ends {
				if begun, done := p.OverSecondary(); begun || done || p.Use() != want || len(p.Tunnels()) != 1 {
					t.Errorf("%s, end %d of leader %d: begun %t, done %t with %s over %s in the end", want, i, leader, begun, done, p.Tunnels(), p.Use())
				}
			}
		}
	}
}

// TestClashes: which tunnels of a pair cannot stand beside each other.
func TestClashes(t *testing.T) {
	t.Parallel()
	ipsec := func(epoch int, alt bool) TunnelID { return TunnelID{Driver: "ipsec", Epoch: epoch, Alternate: alt} }
	tests := []struct {
		a, b TunnelID
		want bool
	}{
		{ipsec(1, false), ipsec(1, false), false}, // the same
		{ipsec(1, false), ipsec(1, true), false},
		{ipsec(1, false), ipsec(2, false), false},
		{ipsec(1, true), ipsec(2, false), true},
		{ipsec(1, false), ipsec(2, true), true},
		{ipsec(1, false), ipsec(3, false), true},
		{of(1), of(1).counterpart(), false},
		{of(1), of(3), true},
		{of(1), ipsec(1, false), false},
	}
	for _, tt := range tests {
		if tt.a.conflictsWith(tt.b) != tt.want || tt.b.conflictsWith(tt.a) != tt.want {
			t.Errorf("%s and %s: want %t", tt.a, tt.b, tt.want)
		}
	}
}
