package health

import (
	"slices"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

var testSettings = Settings{Interval: 10 * time.Millisecond, Misses: 3}

// run sends one probe of a target every 10 ms: '.' gets a reply after 1 ms, 'x' none. It returns
// the state 3 ms after each probe.
func run(t *target, begin time.Time, script string) (states []string) {
	now := begin
	for i, c := range script {
		t.checkDead(now, testSettings)
		sequence := t.probe(now, uint64(i+1), testSettings)
		if c == '.' {
			t.onReply(now.Add(time.Millisecond), &message{sequence: sequence, nonce: uint64(i + 1)}, testSettings)
		}
		t.checkDead(now.Add(3*time.Millisecond), testSettings)
		now = now.Add(10 * time.Millisecond)
		states = append(states, t.liveness.State()[:4])
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
		{"first reply connects", "x.", []string{c, ok}, status.Connected},
		{"alive after two misses", ".xx.xx.", []string{ok, ok, ok, ok, ok, ok, ok}, status.Connected},
		{"dead after three misses", ".xxx.", []string{ok, ok, ok, bad, bad}, status.Disconnected},
		{"alive after three replies", ".xxx...", []string{ok, ok, ok, bad, bad, bad, ok}, status.Connected},
		{"replies must be consecutive", ".xxx..x..", []string{ok, ok, ok, bad, bad, bad, bad, bad, bad}, status.Disconnected},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			target := newTarget(Target{}, epoch, true)
			if have := run(target, epoch, tt.script); !slices.Equal(have, tt.want) || target.liveness.State() != tt.state {
				t.Errorf("got %v and %s, want %v and %s", have, target.liveness.State(), tt.want, tt.state)
			}
		})
	}
}

// epoch is the start of the simulated time.
var epoch = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// TestVerdict checks the moment of death: the timeout of the last probe follows from the least
// round trip.
func TestVerdict(t *testing.T) {
	t.Parallel()
	s := Settings{Interval: 100 * time.Millisecond, Misses: 3}
	tests := []struct {
		name    string
		rtt     time.Duration // 0 = no reply
		timeout time.Duration
	}{
		{"short round trip: a quarter of the interval", time.Millisecond, 25 * time.Millisecond},
		{"long round trip: twice the round trip", 80 * time.Millisecond, 160 * time.Millisecond},
		{"longer than the interval", 130 * time.Millisecond, 260 * time.Millisecond},
		{"no reply", 0, firstReplyTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			target, now := newTarget(Target{}, epoch, true), epoch
			if tt.rtt > 0 {
				sequence := target.probe(now.Add(-time.Second), 1, s)
				target.onReply(now.Add(-time.Second+tt.rtt), &message{sequence: sequence, nonce: 1}, s)
			}
			final := now.Add(2 * s.Interval)
			for i := range 6 {
				if at := now.Add(time.Duration(i) * s.Interval); at.Before(final.Add(tt.timeout)) {
					target.probe(at, 2, s)
				}
			}
			target.next = now.Add(time.Hour)
			if target.setWake(final, s); !target.wake.Equal(final.Add(tt.timeout)) {
				t.Errorf("checks %v after the last probe, want %v", target.wake.Sub(final), tt.timeout)
			}
			if target.checkDead(final.Add(tt.timeout-1), s) {
				t.Error("dead too early")
			}
			if !target.checkDead(final.Add(tt.timeout), s) || target.liveness.State() != status.Disconnected {
				t.Error("not dead")
			}
		})
	}
}

// TestLongRoundTrip checks a round trip of several intervals: replies in flight do not count as
// missing.
func TestLongRoundTrip(t *testing.T) {
	t.Parallel()
	target := newTarget(Target{}, epoch, true)
	const behind = 8 // round trip in intervals
	for i := range 200 {
		now := epoch.Add(time.Duration(i) * testSettings.Interval)
		if target.checkDead(now, testSettings) {
			t.Fatalf("dead at probe %d", i)
		}
		target.probe(now, uint64(i), testSettings)
		if i >= behind {
			target.onReply(now, &message{sequence: uint32(i - behind + 1), nonce: uint64(i - behind)}, testSettings)
		}
	}
	rtt := behind * testSettings.Interval
	if target.liveness.State() != status.Connected || target.minRTT() != rtt {
		t.Errorf("%s, %v", target.liveness.State(), target.minRTT())
	}
}

// TestStarvedProcess pauses the process: unread replies must not count as lost.
func TestStarvedProcess(t *testing.T) {
	t.Parallel()
	target := newTarget(Target{}, epoch, true)
	run(target, epoch, "..xx")
	target.probe(epoch.Add(40*time.Millisecond), 99, testSettings)
	late := epoch.Add(time.Second)
	if target.checkDead(late, testSettings) {
		t.Fatal("dead before the replies were read")
	}
	if target.checkDead(late.Add(time.Millisecond), testSettings) {
		t.Fatal("the extra time is too short")
	}
	if !target.checkDead(late.Add(5*time.Millisecond), testSettings) {
		t.Error("postponed more than once")
	}
	other := newTarget(Target{}, epoch, true)
	run(other, epoch, "..xx")
	sequence := other.probe(epoch.Add(40*time.Millisecond), 99, testSettings)
	other.checkDead(late, testSettings)
	if matched, _ := other.onReply(late, &message{sequence: sequence, nonce: 99}, testSettings); !matched || other.checkDead(late.Add(time.Minute), testSettings) {
		t.Error("dead in spite of the reply")
	}
}

func TestDamping(t *testing.T) {
	t.Parallel()
	target := newTarget(Target{}, epoch, true)
	at := func(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }
	good := condition{rank: Good}
	fall := func(now time.Time) { run(target, now, "xxx") }
	rise := func(now time.Time) { run(target, now, "...") }
	rise(at(0))
	for i, begin := range []int{10, 20, 30} {
		if r := target.rank(at(begin), good); r != Good {
			t.Fatalf("before failure %d the link is %v", i+1, r)
		}
		fall(at(begin))
		if r := target.rank(at(begin+1), good); r != Down || target.reason(at(begin+1), good) != "no reply" {
			t.Fatalf("after failure %d the link is %v", i+1, r)
		}
		rise(at(begin + 5))
	}
	// The third failure was at 30 and the recovery at 35.
	if r, why := target.rank(at(36), good), target.reason(at(36), good); r != Unsteady || why != "3 flaps in 60 s, held until 12:01:05" {
		t.Errorf("got %v, %q", r, why)
	}
	target.next = at(1000)
	if target.setWake(at(36), testSettings); target.wake.Sub(at(65)) > time.Second || target.wake.Before(at(65)) {
		t.Errorf("next check at %v", target.wake)
	}
	if r := target.rank(at(66), good); r != Good {
		t.Errorf("after the hold time the link is %v", r)
	}
	fall(at(67))
	rise(at(68))
	if l := target.link(at(70), testSettings, good); l.Rank != Unsteady || l.Flaps != 4 || l.Held.Before(at(98)) || !strings.HasPrefix(l.Reason, "4 flaps") {
		t.Errorf("after one more failure: %+v", l)
	}
	fall(at(200))
	rise(at(201))
	if r := target.rank(at(202), good); r != Good {
		t.Errorf("a single failure much later makes it %v", r)
	}
	sibling := newTarget(Target{Device: "hw-vx0"}, epoch, true)
	for i := range 5 {
		run(sibling, at(10*i), "...xxx...")
	}
	if r := sibling.rank(at(51), good); r != Good {
		t.Errorf("a link inside the cluster is %v", r)
	}
}

func TestTargetMeasures(t *testing.T) {
	t.Parallel()
	target := newTarget(Target{}, epoch, true)
	for i, rtt := range []time.Duration{2, 4, 4, 4, 5, 5, 7, 9} {
		now := epoch.Add(time.Duration(i) * 10 * time.Millisecond)
		sequence := target.probe(now, 1, testSettings)
		target.onReply(now.Add(rtt*time.Millisecond), &message{sequence: sequence, nonce: 1}, testSettings)
	}
	target.probe(epoch.Add(80*time.Millisecond), 1, testSettings) // lost
	target.probe(epoch.Add(190*time.Millisecond), 1, testSettings)
	rtt, loss := target.measure(epoch.Add(200*time.Millisecond), 50*time.Millisecond)
	want := status.RTT{Last: 9000, Min: 2000, Avg: 5000, Max: 9000, StdDev: 2000}
	if rtt == nil || *rtt != want || loss != 1.0/9 {
		t.Errorf("got %+v and loss %v, want %+v and 1/9", rtt, loss, want)
	}
	if target.minRTT() != 2*time.Millisecond {
		t.Errorf("least round trip %v", target.minRTT())
	}
	run(target, epoch.Add(time.Second), string(slices.Repeat([]byte("x"), windowSize)))
	if rtt, loss := target.measure(epoch.Add(time.Hour), time.Second); rtt != nil || loss != 1 || target.minRTT() != 0 {
		t.Errorf("after a window without replies: got %+v and loss %v", rtt, loss)
	}
}

func TestTargetMatchesReplies(t *testing.T) {
	t.Parallel()
	target := newTarget(Target{}, epoch, true)
	target.probe(epoch, 7, testSettings)
	foreign := []message{
		{sequence: 1, nonce: 8}, {sequence: 2, nonce: 7}, {sequence: 0, nonce: 0}, {sequence: 1<<32 + 1 - windowSize, nonce: 7},
	}
	for _, m := range foreign {
		if matched, _ := target.onReply(epoch, &m, testSettings); matched {
			t.Errorf("%+v was accepted", m)
		}
	}
	m := message{sequence: 1, nonce: 7}
	if matched, changed := target.onReply(epoch, &m, testSettings); !matched || !changed {
		t.Error("the reply was not accepted")
	}
	if matched, _ := target.onReply(epoch, &m, testSettings); matched {
		t.Error("the same reply was accepted twice")
	}
}
