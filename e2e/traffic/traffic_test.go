package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"hawser.dev/hawser/lab/netnsexec"
)

// space is a network namespace of one test.
type space struct {
	t    *testing.T
	path string
}

func newSpace(t *testing.T) *space {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("REQUIRE_KERNEL") == "1" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	dir := filepath.Join(t.TempDir(), "ns")
	if err := netnsexec.Prepare(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netnsexec.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s := &space{t: t, path: filepath.Join(dir, "one")}
	if err := netnsexec.Create(s.path); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *space) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return Socket{Net: s.path}.Dial(ctx, network, address)
}

// serve runs a server until stop is called or the test ends.
func (s *space) serve(name string) (stop func()) {
	s.t.Helper()
	server, err := Serve(Socket{Net: s.path}, name, nil, 7000)
	if err != nil {
		s.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := server.Close(); err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

func TestTally(t *testing.T) {
	t.Parallel()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	tally := newTally()
	for n := range 20 {
		tally.send(ms(n))
	}
	for _, n := range []int{0, 1, 3, 2, 3, 4, 12, 13, 14, 99} { // 5 to 11 and 15 to 19 are lost
		tally.receive(n, ms(max(n, 3)+1))
	}
	got := tally.report(time.Unix(0, 0), ms(20), ms(5))
	want := UDPReport{Sent: 20, Received: 8, Lost: 12, Duplicates: 1, Reordered: 1}
	have := UDPReport{Sent: got.Sent, Received: got.Received, Lost: got.Lost, Duplicates: got.Duplicates, Reordered: got.Reordered}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Number 4 was answered at 5, number 12 at 13; 5 left at 5 and 12 at 12.
	if got.Silence.From != Millis(ms(5)) || got.Silence.Long != Millis(ms(8)) || len(got.Silences) != 2 {
		t.Errorf("silence %+v of %d", got.Silence, len(got.Silences))
	}
	if got.Outage.From != Millis(ms(5)) || got.Outage.Long != Millis(ms(7)) || got.Outage.Lost != 7 || len(got.Outages) != 2 {
		t.Errorf("outage %+v of %d", got.Outage, len(got.Outages))
	}
	if got.RTT.Max != Millis(ms(4)) || got.Pause != Millis(ms(1)) {
		t.Errorf("rtt %+v, pause %v", got.RTT, got.Pause)
	}
}

// TestTallyBeyondWindow tests the counts of a flow longer than the window.
func TestTallyBeyondWindow(t *testing.T) {
	t.Parallel()
	tally := newTally()
	const sent = 3*window + 7
	for n := range sent {
		tally.send(time.Duration(n))
		if n%100 != 0 {
			tally.receive(n, time.Duration(n))
		}
		if n == 2*window {
			tally.receive(100, time.Duration(n)) // far too late
		}
	}
	got := tally.report(time.Unix(0, 0), sent, time.Hour)
	if want := (sent + 99) / 100; got.Lost != want || got.Received != sent-want {
		t.Errorf("%d lost, %d received of %d; want %d lost", got.Lost, got.Received, sent, want)
	}
	if len(got.Outages) != maxGaps && len(got.Outages) != got.Lost {
		t.Errorf("%d outages listed", len(got.Outages))
	}
}

func TestSummarise(t *testing.T) {
	t.Parallel()
	var values []time.Duration
	for n := range 200 {
		values = append(values, time.Duration(200-n)*time.Millisecond)
	}
	got := Summarise(values)
	want := Spread{Count: 200, P50: Millis(100 * time.Millisecond), P90: Millis(180 * time.Millisecond),
		P99: Millis(198 * time.Millisecond), Max: Millis(200 * time.Millisecond)}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	raw, err := json.Marshal(got)
	var back Spread
	if err = errors.Join(err, json.Unmarshal(raw, &back)); err != nil || back != got {
		t.Errorf("%s became %+v, %v", raw, back, err)
	}
	if Summarise(nil) != (Spread{}) {
		t.Error("Summarise(nil) is not zero")
	}
}

// TestUDP tests that a flow loses nothing, except the datagrams sent without a server.
func TestUDP(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	stop := s.serve("a")
	report, err := UDP{Target: "127.0.0.1:7000", Rate: 2000, Count: 400, Dial: s.dial}.Run(context.Background())
	if err != nil || report.Sent != 400 || report.Lost != 0 || report.Received != 400 || report.Duplicates != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ready := func() {
		stop()
		time.AfterFunc(200*time.Millisecond, cancel)
	}
	report, err = UDP{Target: "127.0.0.1:7000", Rate: 1000, Threshold: 50 * time.Millisecond, Dial: s.dial, Ready: ready}.Run(ctx)
	if err != nil || report.Lost == 0 || report.Lost+report.Received != report.Sent || report.Outage.Lost == 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if time.Duration(report.Silence.Long) < 150*time.Millisecond || len(report.Silences) == 0 {
		t.Errorf("silence %+v", report.Silence)
	}
	if !strings.Contains(report.SendError, "refused") {
		t.Errorf("error of sending: %q", report.SendError)
	}
}

// TestTCP tests that all kinds survive without a fault, and that none survives the end of the
// server.
func TestTCP(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		s := newSpace(t)
		stop := s.serve("a")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ready := func() {
			time.AfterFunc(200*time.Millisecond, func() {
				if dies {
					stop()
				}
				cancel()
			})
		}
		report, err := TCP{
			Targets: []string{"127.0.0.1:7000"}, Count: 80, Interval: 10 * time.Millisecond, Patience: 5 * time.Second,
			Dial: s.dial, Ready: ready,
		}.Run(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want, resets := 20, 0
		if dies {
			want, resets = 0, 20
		}
		for _, kind := range Kinds() {
			k := report.Kinds[kind]
			if k == nil || k.Connections != 20 || k.Survivors != want || k.Resets != resets || k.Timeouts != 0 || k.Stall.Count != want {
				t.Errorf("server dies %t: %s: %+v", dies, kind, k)
			}
		}
		if report.Survivors != 4*want || report.Servers["a"] != 80 || len(report.Failures) != min(4*resets, maxFailures) {
			t.Errorf("server dies %t: %+v", dies, report)
		}
	}
}

// TestTCPSilence tests that a connection without answers is a timeout, not a survivor.
func TestTCPSilence(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	var listener net.Listener
	err := netnsexec.Do(s.path, func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:7000")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = conn.Write(message{who: "mute"}.encode())
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	report, err := TCP{
		Targets: []string{"127.0.0.1:7000"}, Count: 8, Interval: 10 * time.Millisecond, Patience: 100 * time.Millisecond,
		Dial: s.dial, Ready: cancel,
	}.Run(ctx)
	if err != nil || report.Survivors != 0 || report.Timeouts != 8 || report.Resets != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestTCPCannotOpen(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	_, err := TCP{
		Targets: []string{"127.0.0.1:7000"}, Count: 4, Interval: time.Second, Patience: time.Second, Open: 200 * time.Millisecond, Dial: s.dial,
	}.Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "open connection 0 of 4 to 127.0.0.1:7000: ") {
		t.Errorf("error %v", err)
	}
}

// TestCalls tests that every attempt is answered and recorded, and that all fail without a server.
func TestCalls(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	stop := s.serve("a")
	recorded := 0
	onAttempt := func(a Attempt) error {
		if a.Server == "a" && a.Error == "" && a.Long > 0 && !a.At.IsZero() {
			recorded++
		}
		return nil
	}
	call := Call{Target: "127.0.0.1:7000", Dial: s.dial}
	report, err := Calls{Call: call, Rate: 500, Count: 50, OnAttempt: onAttempt}.Run(context.Background())
	if err != nil || report.Attempts != 50 || report.Failed != 0 || report.Servers["a"] != 50 || report.Took.Count != 50 {
		t.Errorf("%+v, %v", report, err)
	}
	if recorded != 50 {
		t.Errorf("%d attempts were recorded, want 50", recorded)
	}
	stop()
	report, err = Calls{Call: call, Rate: 500, Count: 50}.Run(context.Background())
	if err != nil || report.Attempts != 50 || report.Failed != 50 || report.FirstError == nil || report.LastError == nil {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestParseKinds(t *testing.T) {
	t.Parallel()
	got, err := ParseKinds("busy,idle")
	if err != nil || !slices.Equal(got, []Kind{Busy, Idle}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := ParseKinds("busy,lazy"); err == nil || err.Error() != `kind "lazy": one of idle, busy, client-push, server-push, or all` {
		t.Errorf("error %v", err)
	}
	if got, err := ParseKinds("all"); err != nil || len(got) != 4 {
		t.Errorf("%v, %v", got, err)
	}
}

// newLog returns a flow of one packet a millisecond. Packets for which answered is true are
// answered after half a millisecond.
func newLog(count int, answered func(int) bool) *tally {
	l := newTally()
	for i := range count {
		at := time.Duration(i) * time.Millisecond
		l.send(at)
		if answered(i) {
			l.receive(i, at+time.Millisecond/2)
		}
	}
	return l
}

func TestGapAndLost(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	outage := func(from, to int) func(int) bool { return func(i int) bool { return i < from || i >= to } }
	tests := []struct {
		name       string
		back       func(int) bool
		from, to   time.Duration
		gap        time.Duration
		lost, sent int
	}{
		{"whole", outage(0, 0), 100 * ms, 200 * ms, ms, 0, 100},
		{"an outage within", outage(120, 150), 100 * ms, 200 * ms, 31 * ms, 30, 100},
		{"an outage that began before", outage(50, 150), 100 * ms, 200 * ms, 101 * ms, 50, 100},
		{"an outage that ended before", outage(50, 90), 100 * ms, 200 * ms, ms, 0, 100},
		{"an outage that has not ended", outage(150, 1000), 100 * ms, 200 * ms, 50*ms + ms/2, 50, 100},
		{"never anything", outage(0, 1000), 100 * ms, 200 * ms, 200 * ms, 100, 100},
		{"nothing sent later", outage(0, 0), 2000 * ms, 2100 * ms, 1100*ms + ms/2, 0, 0},
	}
	for _, tt := range tests {
		l := newLog(1000, tt.back)
		if have := l.gap(tt.from, tt.to); have != tt.gap {
			t.Errorf("%s: gap %s, want %s", tt.name, have, tt.gap)
		}
		if lost, sent := l.lost(tt.from, tt.to); lost != tt.lost || sent != tt.sent {
			t.Errorf("%s: %d of %d lost, want %d of %d", tt.name, lost, sent, tt.lost, tt.sent)
		}
	}
	l := newLog(1000, outage(0, 0))
	l.sent = slices.Concat(l.sent[:100], l.sent[150:])
	ends := l.sent[100] - l.sent[99]
	if have := longest(l.sent, l.sent[90], l.sent[110]); have != ends || ends < 50*ms {
		t.Errorf("the sender paused for %s, want %s", have, ends)
	}
	flow := newLog(3, outage(0, 0))
	flow.receive(1, 10*ms)
	flow.receive(99, 10*ms)
	if len(flow.arrived) != 3 {
		t.Errorf("a duplicate or unknown answer counts: %v", flow.arrived)
	}
}

// TestConnections tests connections to two addresses. Every kind survives, unless the server stops.
func TestConnections(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	stop := s.serve("a")
	for _, want := range []int{5, 0} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ready := func() {
			if want == 0 {
				stop()
			}
			cancel()
		}
		report, err := TCP{
			Targets: []string{"127.0.0.1:7000", "[::1]:7000"}, Count: 20, Interval: 250 * time.Millisecond, Patience: time.Minute, Grace: 5 * time.Second,
			Reset: true, Dial: s.dial, Ready: ready,
		}.Run(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range Kinds() {
			if have := report.Kinds[kind]; have.Survivors != want || have.Connections != 5 {
				t.Errorf("%s: %d of %d alive, want %d of 5", kind, have.Survivors, have.Connections, want)
			}
		}
	}
}

// TestGrace tests that connections silent at the end get the grace period, and not more.
func TestGrace(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.serve("a")
	loopback := func(up bool) {
		t.Helper()
		if err := (Socket{Net: s.path}).inside(func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			if up {
				return netlink.LinkSetUp(lo)
			}
			return netlink.LinkSetDown(lo)
		}); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ended time.Time
	report, err := TCP{
		Targets: []string{"127.0.0.1:7000"}, Count: 8, Interval: 10 * time.Millisecond, Patience: time.Minute, Grace: 500 * time.Millisecond,
		Dial: s.dial, Ready: func() { loopback(false); ended = time.Now(); cancel() },
	}.Run(ctx)
	if took := time.Since(ended); err != nil || report.Survivors != 0 || report.Timeouts != 8 || took > 30*time.Second {
		t.Errorf("%+v, %v after %s", report, err, took)
	}
	loopback(true)
}

func TestMessage(t *testing.T) {
	t.Parallel()
	want := message{who: "g1/caller", mode: modePush, seq: 1 << 40, arg: 1 << 50, body: []byte("more")}
	got, err := receive(bytes.NewReader(want.encode()))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	got, _, err = decode(want.encode()[:minDatagram])
	if err != nil || got.seq != want.seq || got.arg != want.arg || got.mode != want.mode || got.who != "" {
		t.Errorf("the shortest datagram: %+v, %v", got, err)
	}
	spoiled := want.encode()
	spoiled[3]++
	if _, err := receive(bytes.NewReader(spoiled)); !errors.Is(err, errNoMessage) {
		t.Errorf("a spoiled mark: %v", err)
	}
	tooLong := want.encode()
	tooLong[32] = 1
	if _, err := receive(bytes.NewReader(tooLong)); !errors.Is(err, errNoMessage) {
		t.Errorf("an endless body: %v", err)
	}
	if _, _, err := decode(want.encode()[:minDatagram-1]); !errors.Is(err, errNoMessage) {
		t.Errorf("a short message: %v", err)
	}
}

// TestServerSees tests that a server sees the caller's name, address and start time. Long
// answers are complete, and ports are used in rotation.
func TestServerSees(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	var mu sync.Mutex
	var saw []Seen
	server, err := Serve(Socket{Net: s.path, RetryAtMost: time.Second, GiveUp: time.Minute}, "g2/web", func(seen Seen) {
		mu.Lock()
		defer mu.Unlock()
		saw = append(saw, seen)
	}, 7000)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	dial := Socket{Net: s.path, RetryAtMost: time.Second, GiveUp: time.Minute}.Ports(10_000, 10_002)
	for _, call := range []Call{{}, {Burst: true}, {Reset: true}, {UDP: true}} {
		call.Target, call.Who, call.Dial = "127.0.0.1:7000", "g1/caller", dial
		call.Reset = !call.UDP
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		name, err := call.Make(ctx)
		cancel()
		if err != nil || name != "g2/web" && !call.UDP {
			t.Errorf("%+v: %q, %v", call, name, err)
		}
	}
	conn, err := Socket{Net: s.path}.Dial(t.Context(), "tcp", "127.0.0.1:7000")
	if err != nil {
		t.Fatal(err)
	}
	const text = "hawser text\n"
	raw := make([]byte, len(text))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(conn, raw); err != nil || string(raw) != text {
		t.Errorf("text was echoed as %q, %v", raw, err)
	}
	_ = conn.Close()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if len(saw) != 4 {
		t.Fatalf("the server saw %+v", saw)
	}
	for i, seen := range saw {
		if seen.Caller != "g1/caller" || seen.Server != "g2/web" || seen.From != netip.MustParseAddr("127.0.0.1") || i < 3 && seen.Begun.Before(start) {
			t.Errorf("the server saw %+v", seen)
		}
	}
}

// TestReceiveNoticesLoss tests that a missing message is an error.
func TestReceiveNoticesLoss(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer a.Close()
	go func() {
		defer b.Close()
		for _, seq := range []uint64{0, 1, 3} {
			_, _ = b.Write(message{who: "s", mode: modePush, seq: seq}.encode())
		}
	}()
	c := &Connection{conn: a, messages: a}
	for range 2 {
		if err := c.Receive(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Receive(); err == nil || err.Error() != "messages lost or doubled: got 3, want 2" {
		t.Errorf("Receive with a missing message: %v", err)
	}
}
