package migration

import (
	"slices"
	"testing"
	"time"
)

func of(epoch int) TunnelID {
	return TunnelID{Driver: "wireguard", Ports: [2]int{1000, 2000}, Epoch: epoch}
}

func having(epochs ...int) Keys { return Keys{"wireguard": epochs} }

// two is a pair from both of its ends, on a network that loses nothing.
type two struct {
	ends [2]*Pair
	now  time.Time
}

// run lets time pass, with a pass at each end every tenth of a second.
func (w *two) run(span time.Duration) {
	for end := w.now.Add(span); w.now.Before(end); w.now = w.now.Add(100 * time.Millisecond) {
		for i, p := range w.ends {
			p.Applied(p.Tunnels(), p.Use(), w.now)
			out, _ := p.Tick(w.now)
			for _, o := range out {
				if answer, ok := w.ends[1-i].Receive(o.On, o.Message, w.now); ok {
					p.Receive(o.On, answer, w.now)
				}
			}
		}
	}
}

// TestEpochs: a pair goes to the newest epoch that both ends have, whatever each of
// them began with and however late one hears of it.
func TestEpochs(t *testing.T) {
	t.Parallel()
	start := time.Unix(0, 0).UTC()
	tests := map[string]struct {
		begin, then [2]Keys // of both ends; then = after a while
		want, after int     // the epoch in use
	}{
		"one hears late":      {[2]Keys{having(1, 2), having(1)}, [2]Keys{having(1, 2), having(1, 2)}, 1, 2},
		"both are new":        {[2]Keys{having(1, 2), having(1, 2)}, [2]Keys{having(2), having(2)}, 2, 2},
		"one is new":          {[2]Keys{having(1, 2), having(2)}, [2]Keys{having(2), having(2)}, 2, 2},
		"the next one":        {[2]Keys{having(2), having(2)}, [2]Keys{having(2, 3), having(2, 3)}, 2, 3},
		"two rotations":       {[2]Keys{having(2), having(2, 3)}, [2]Keys{having(3, 4), having(3, 4)}, 2, 4},
		"dropped while late":  {[2]Keys{having(1, 2), having(1)}, [2]Keys{having(2), having(1)}, 1, 0},
		"heard of both late":  {[2]Keys{having(1, 2), having(1)}, [2]Keys{having(2), having(2)}, 1, 2},
		"one dropped already": {[2]Keys{having(1), having(1)}, [2]Keys{having(1, 2), having(2)}, 1, 2},
	}
	newest := func(k Keys) TunnelID { return of(slices.Max(k["wireguard"])) }
	for name, tt := range tests {
		w := two{now: start}
		for i, keys := range tt.begin {
			w.ends[i] = NewPair(newest(keys), keys, uint64(i+1)<<20, w.now)
		}
		w.run(time.Minute)
		check(t, name, &w, tt.want)
		for i, keys := range tt.then {
			w.ends[i].Want(newest(keys), keys, w.now)
		}
		w.run(time.Minute)
		check(t, name+", then", &w, tt.after)
	}
}

// check wants both ends to use an epoch; 0 = they have none in common.
func check(t *testing.T, name string, w *two, epoch int) {
	t.Helper()
	a, b := w.ends[0], w.ends[1]
	switch {
	case epoch == 0:
		if a.Use() == b.Use() {
			t.Errorf("%s: both ends use %s", name, a.Use())
		}
	case a.Use() != of(epoch) || b.Use() != of(epoch):
		t.Errorf("%s: the ends use %s and %s, want epoch %d", name, a.Use(), b.Use(), epoch)
	case a.Progress(w.now).Why == "" && len(a.Tunnels()) != 1:
		t.Errorf("%s: still has %v", name, a.Tunnels())
	}
}

// TestForgottenKeys: what the run before had counts as far as there are keys.
func TestForgottenKeys(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0).UTC()
	kept := Saved{Tunnels: []TunnelID{of(1), of(2)}, Use: of(1)}
	tests := map[string]struct {
		keys  Keys
		use   int
		holds int
	}{
		"all":     {having(1, 2), 1, 2},
		"unknown": {nil, 1, 2},
		"new":     {having(2), 2, 1},
		"other":   {having(2, 3), 2, 2},
	}
	for name, tt := range tests {
		want := 2
		if tt.keys != nil {
			want = slices.Max(tt.keys["wireguard"])
		}
		p := Restore(kept, of(want), tt.keys, 1, now)
		if p.Use() != of(tt.use) || len(p.Tunnels()) != tt.holds {
			t.Errorf("%s: has %v over %s", name, p.Tunnels(), p.Use())
		}
	}
}
