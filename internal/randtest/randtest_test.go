package randtest

import "testing"

func TestEnvironment(t *testing.T) {
	for _, tt := range []struct {
		rounds, seed string
		wantRounds   int
		wantSeed     uint64
	}{
		{"", "", 7, 0},
		{"10", "3", 70, 3},
	} {
		t.Setenv("ROUNDS", tt.rounds)
		t.Setenv("SEED", tt.seed)
		if have := Rounds(t, 7); have != tt.wantRounds {
			t.Errorf("ROUNDS=%s: %d rounds, want %d", tt.rounds, have, tt.wantRounds)
		}
		if have, set := Seed(t); have != tt.wantSeed || set != (tt.seed != "") {
			t.Errorf("SEED=%s: seed %d, %t", tt.seed, have, set)
		}
	}
}
