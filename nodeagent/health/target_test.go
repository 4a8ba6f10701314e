package health

import (
	"slices"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

// run drives a target with one probe every 10 ms: '.' is answered after 1 ms,
// 'x' is not. It gives the state after each.
func run(t *target, begin time.Time, script string) (states []string) {
	now := begin
	for i, c := range script {
		t.tick(now, uint64(i+1), 3)
		if c == '.' {
			m := message{sequence: t.sequence, nonce: uint64(i + 1)}
			t.answer(now.Add(time.Millisecond), &m, 3)
		}
		now = now.Add(10 * time.Millisecond)
		states = append(states, t.state[:4])
	}
	return states
}

func TestTargetStates(t *testing.T) {
	t.Parallel()
	const c, ok, bad = "conn", "conn", "erro"
	tests := []struct {
		name, script string
		want         []string
		state        string
	}{
		{"first answer connects", "x.", []string{c, ok}, status.Connected},
		{"never answered", "xxxx", []string{c, c, c, bad}, status.Disconnected},
		{"two misses are no death", ".xx.xx.", []string{ok, ok, ok, ok, ok, ok, ok}, status.Connected},
		{"three are", ".xxx.", []string{ok, ok, ok, ok, bad}, status.Disconnected},
		{"back after three answers", "xxxx...", []string{c, c, c, bad, bad, bad, ok}, status.Connected},
		{"answers must be in a row", "xxxx..x..", []string{c, c, c, bad, bad, bad, bad, bad, bad}, status.Disconnected},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			begin := time.Unix(1000, 0)
			one := newTarget(Target{}, begin, true)
			if have := run(one, begin, tt.script); !slices.Equal(have, tt.want) || one.state != tt.state {
				t.Errorf("got %v and %s, want %v and %s", have, one.state, tt.want, tt.state)
			}
		})
	}
}

func TestTargetMeasures(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	one := newTarget(Target{}, begin, true)
	for i, rtt := range []time.Duration{2, 4, 4, 4, 5, 5, 7, 9} {
		now := begin.Add(time.Duration(i) * 10 * time.Millisecond)
		one.tick(now, 1, 3)
		one.answer(now.Add(rtt*time.Millisecond), &message{sequence: one.sequence, nonce: 1}, 3)
	}
	one.tick(begin.Add(80*time.Millisecond), 1, 3) // lost
	one.tick(begin.Add(190*time.Millisecond), 1, 3)
	rtt, loss := one.measure(begin.Add(200*time.Millisecond), 50*time.Millisecond)
	want := status.RTT{Last: 9000, Min: 2000, Avg: 5000, Max: 9000, StdDev: 2000}
	if rtt == nil || *rtt != want || loss != 1.0/9 {
		t.Errorf("got %+v and loss %v, want %+v and 1/9", rtt, loss, want)
	}
	run(one, begin.Add(time.Second), string(slices.Repeat([]byte("x"), window)))
	if rtt, loss := one.measure(begin.Add(time.Hour), time.Second); rtt != nil || loss != 1 {
		t.Errorf("after a window without answers got %+v and loss %v", rtt, loss)
	}
}

func TestTargetTakesOnlyItsOwnAnswers(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	one := newTarget(Target{}, begin, true)
	one.tick(begin, 7, 3)
	foreign := []message{
		{sequence: 1, nonce: 8}, {sequence: 2, nonce: 7}, {sequence: 0, nonce: 0}, {sequence: 1<<32 + 1 - window, nonce: 7},
	}
	for _, m := range foreign {
		if matched, _ := one.answer(begin, &m, 3); matched {
			t.Errorf("%+v was taken", m)
		}
	}
	m := message{sequence: 1, nonce: 7}
	if matched, changed := one.answer(begin, &m, 3); !matched || !changed {
		t.Error("the answer was not taken")
	}
	if matched, _ := one.answer(begin, &m, 3); matched {
		t.Error("the same answer was taken twice")
	}
}
