package pathmtu

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/peer/wire"
)

var (
	testStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	link      = Link{
		Peer: "g2/a", Source: netip.MustParseAddr("241.0.0.1"), Addr: netip.MustParseAddr("241.0.0.2"), MTU: 1420, InUse: true,
	}
)

// simulation runs a path and a network in simulated time.
type simulation struct {
	t      *testing.T
	now    time.Time
	path   *linkState
	passes func(size int) bool // by the size of a packet
	rtt    time.Duration
	random *rand.Rand
	probes int
	states []LinkMTU // after each change
}

func simulate(t *testing.T, l Link, passes func(size int) bool) *simulation {
	t.Helper()
	return &simulation{
		t: t, now: testStart, path: newLinkState(testStart, l, testInterval(l), 0), passes: passes, rtt: 20 * time.Millisecond,
		random: rand.New(rand.NewPCG(1, 2)),
	}
}

// testInterval returns the interval of a link with traffic if it is in use.
func testInterval(l Link) time.Duration {
	if l.InUse {
		return activeInterval
	}
	return minStandbyInterval
}

func passUpTo(most int) func(int) bool { return func(size int) bool { return size <= most } }

func passNothing(int) bool { return false }

// lossy drops a share of all packets, independent of their size.
func (s *simulation) lossy(share float64, passes func(int) bool) func(int) bool {
	return func(size int) bool { return s.random.Float64() >= share && passes(size) }
}

// run advances the time.
func (s *simulation) run(d time.Duration) {
	s.t.Helper()
	s.until(d, func() bool { return false })
}

// until advances the time until done, for at most d. It returns the elapsed time.
func (s *simulation) until(d time.Duration, done func() bool) time.Duration {
	s.t.Helper()
	start, end := s.now, s.now.Add(d)
	for !done() {
		if s.path.next.After(end) {
			s.now = end
			return d
		}
		if s.path.next.After(s.now) {
			s.now = s.path.next
		}
		s.step()
	}
	return s.now.Sub(start)
}

// step runs the due tick and delivers the replies.
func (s *simulation) step() {
	s.t.Helper()
	out, changed := s.path.tick(s.now, s.random.Uint64)
	s.record(changed)
	s.probes += len(out)
	var answers []wire.SizeProbe
	for _, probe := range out {
		if probe.size > s.path.MTU || probe.size < minProbeSize(s.path.Addr) {
			s.t.Fatalf("a probe of %d bytes", probe.size)
		}
		if s.passes(probe.size) {
			answers = append(answers, wire.SizeProbe{Reply: true, Bytes: uint16(probe.size), Nonce: probe.nonce})
		}
	}
	if len(out) == 0 {
		return
	}
	if !s.path.next.After(s.now) {
		s.t.Fatal("a try without an end")
	}
	if s.path.next.Sub(s.now) >= s.rtt && len(answers) > 0 {
		s.now = s.now.Add(s.rtt)
		for _, m := range answers {
			known, changed := s.path.onReply(s.now, m)
			if !known && s.path.trying {
				s.t.Fatalf("unexpected reply %+v", m)
			}
			s.record(changed)
		}
	}
}

func (s *simulation) record(changed bool) {
	if changed {
		s.states = append(s.states, s.path.LinkMTU)
	}
}

func (s *simulation) expect(state string, value int) {
	s.t.Helper()
	if s.path.State != state || s.path.PathMTU != value {
		s.t.Fatalf("after %s: %s %d, want %s %d", s.now.Sub(testStart), s.path.State, s.path.PathMTU, state, value)
	}
}

func (s *simulation) inState(state string) func() bool {
	return func() bool { return s.path.State == state }
}

func TestFullSize(t *testing.T) {
	t.Parallel()
	s := simulate(t, link, passUpTo(9000))
	s.run(time.Second)
	s.expect(OK, 1420)
	s.probes = 0
	s.run(time.Hour)
	s.expect(OK, 1420)
	if s.probes > 720 || s.probes < 600 || len(s.states) != 1 {
		t.Errorf("%d probes and %d changes in an hour of calm", s.probes, len(s.states))
	}
}

// TestBlackHole checks that every size is found exactly within ten seconds, and the recovery.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	for _, mtu := range []int{1420, 8920, 65_455} {
		l := link
		l.MTU = mtu
		for size := MinMTU; size < mtu; size += 1 + mtu/1500*7 {
			s := simulate(t, l, passUpTo(mtu))
			s.run(4 * time.Second)
			s.expect(OK, mtu)
			s.passes = passUpTo(size)
			took := s.until(time.Minute, s.inState(BlackHole))
			s.expect(BlackHole, size)
			if mtu < 1500 && took > 10*time.Second || took > 16*time.Second {
				t.Fatalf("%d of %d found after %s", size, mtu, took)
			}
			s.run(5 * time.Minute)
			s.expect(BlackHole, size)
			s.passes = passUpTo(mtu)
			if took := s.until(time.Minute, s.inState(OK)); took > recoveryInterval+time.Second {
				t.Fatalf("full size back after %s", took)
			}
			s.expect(OK, mtu)
		}
	}
}

func TestBelowFloor(t *testing.T) {
	t.Parallel()
	s := simulate(t, link, passUpTo(100))
	s.run(time.Hour)
	s.expect(BlackHole, MinMTU)
	s.passes = passUpTo(1420)
	s.run(time.Minute)
	s.expect(OK, 1420)
}

// TestFromTheStart uses a path that never passed full size.
func TestFromTheStart(t *testing.T) {
	t.Parallel()
	s := simulate(t, link, passUpTo(1300))
	if took := s.until(time.Minute, s.inState(BlackHole)); took > 6*time.Second {
		t.Errorf("found after %s", took)
	}
	s.expect(BlackHole, 1300)
}

// TestSilence checks that a link that is down changes nothing.
func TestSilence(t *testing.T) {
	t.Parallel()
	s := simulate(t, link, passNothing)
	s.run(time.Hour)
	s.expect(Unknown, 1420)
	if s.probes > 1600 {
		t.Errorf("%d probes in an hour of silence", s.probes)
	}
	s.passes = passUpTo(1420)
	s.run(10 * time.Second)
	s.expect(OK, 1420)
	s.passes = passNothing
	s.run(time.Hour)
	s.expect(OK, 1420)
	s.passes = passUpTo(1300)
	s.run(15 * time.Second)
	s.expect(BlackHole, 1300)
}

// TestSilenceInSearch checks that a search continues at the same size after silence.
func TestSilenceInSearch(t *testing.T) {
	t.Parallel()
	s := simulate(t, link, passUpTo(1300))
	s.until(time.Minute, s.inState(Searching))
	s.passes = passNothing
	s.run(time.Minute)
	s.expect(Searching, 1420)
	s.passes = passUpTo(1300)
	s.run(12 * time.Second)
	s.expect(BlackHole, 1300)
}

// TestLoss checks that packet loss is no black hole, and that a black hole is found despite loss.
func TestLoss(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{0.01, 0.05, 0.2} {
		s := simulate(t, link, nil)
		s.passes = s.lossy(share, passUpTo(1420))
		s.run(24 * time.Hour)
		for _, p := range s.states {
			if p.State == BlackHole {
				t.Fatalf("loss of %v is a black hole of %d", share, p.PathMTU)
			}
		}
		s.passes = s.lossy(share, passUpTo(1300))
		s.run(2 * time.Minute)
		if s.path.State != BlackHole || s.path.PathMTU < 1200 || s.path.PathMTU > 1300 {
			t.Errorf("with loss of %v: %s %d", share, s.path.State, s.path.PathMTU)
		}
	}
}

// TestChanges uses a path whose MTU decreases, and one whose MTU increases in part.
func TestChanges(t *testing.T) {
	t.Parallel()
	s := simulate(t, link, passUpTo(1350))
	s.run(10 * time.Second)
	s.expect(BlackHole, 1350)
	s.passes = passUpTo(1250)
	s.run(15 * time.Second)
	s.expect(BlackHole, 1250)
	s.passes = passUpTo(1400)
	s.run(recoveriesPerSearch*recoveryInterval + time.Minute)
	s.expect(BlackHole, 1400)
	for _, p := range s.states {
		if p.State == OK {
			t.Errorf("%+v meanwhile", p)
		}
	}
}

// TestSlowLine uses a round trip of 400 ms.
func TestSlowLine(t *testing.T) {
	t.Parallel()
	s := simulate(t, link, passUpTo(1420))
	s.rtt = 400 * time.Millisecond
	s.run(time.Minute)
	s.expect(OK, 1420)
	s.passes = passUpTo(1300)
	s.run(time.Minute)
	s.expect(BlackHole, 1300)
}

// TestForged checks that only the reply to a probe counts.
func TestForged(t *testing.T) {
	t.Parallel()
	p := newLinkState(testStart, link, activeInterval, 0)
	nonce := uint64(7)
	out, _ := p.tick(testStart, func() uint64 { nonce++; return nonce })
	if len(out) != 1 || out[0].size != 1420 {
		t.Fatalf("probes %+v", out)
	}
	for _, m := range []wire.SizeProbe{
		{Nonce: out[0].nonce + 1, Bytes: 1420}, {Nonce: out[0].nonce, Bytes: 1300}, {Nonce: 0, Bytes: 0},
	} {
		if known, changed := p.onReply(testStart, m); known || changed {
			t.Errorf("accepted %+v", m)
		}
	}
	m := wire.SizeProbe{Reply: true, Nonce: out[0].nonce, Bytes: 1420}
	if known, changed := p.onReply(testStart, m); !known || !changed {
		t.Error("the valid reply was not accepted")
	}
	if known, _ := p.onReply(testStart, m); known {
		t.Error("the reply was accepted twice")
	}
}
