package flow

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/lab/netspace"
)

// space is a namespace of this test's own with a server in it.
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
	if err := netspace.Prepare(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netspace.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s := &space{t: t, path: filepath.Join(dir, "one")}
	if err := netspace.Create(s.path); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *space) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = netspace.Do(s.path, func() error {
		conn, err = Plain(ctx, network, address)
		return err
	})
	return conn, err
}

// serve runs a server until stop is called or the test ends.
func (s *space) serve(name string) (stop func()) {
	s.t.Helper()
	var server *Server
	err := netspace.Do(s.path, func() (err error) {
		server, err = Listen(name, []int{7000})
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := server.Serve(ctx); err != nil {
			s.t.Error(err)
		}
	})
	stop = func() { cancel(); group.Wait() }
	s.t.Cleanup(stop)
	return stop
}

func TestTally(t *testing.T) {
	t.Parallel()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	tally := newTally(time.Unix(0, 0), ms(5))
	for n := range 20 {
		tally.send(ms(n))
	}
	for _, n := range []int{0, 1, 3, 2, 3, 4, 12, 13, 14, 99} { // 5 to 11 and 15 to 19 are lost
		tally.receive(n, ms(max(n, 3)+1))
	}
	got := tally.finish(ms(20))
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

// TestTallyForgets: a flow that is longer than the window counts all the same.
func TestTallyForgets(t *testing.T) {
	t.Parallel()
	tally := newTally(time.Unix(0, 0), time.Hour)
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
	got := tally.finish(sent)
	if want := (sent + 99) / 100; got.Lost != want || got.Received != sent-want {
		t.Errorf("%d lost, %d received of %d; want %d lost", got.Lost, got.Received, sent, want)
	}
	if len(got.Outages) != mostGaps && len(got.Outages) != got.Lost {
		t.Errorf("%d rows of lost ones listed", len(got.Outages))
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
		t.Error("nothing has a spread")
	}
}

// TestUDP: a flow loses nothing, and loses exactly what was sent while no server was there.
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

// TestTCP: all kinds survive when nothing happens, and none when the server ends.
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
		if report.Survivors != 4*want || report.Servers["a"] != 80 || len(report.Failures) != min(4*resets, mostFailures) {
			t.Errorf("server dies %t: %+v", dies, report)
		}
	}
}

// TestTCPSilence: a connection that nobody answers any more is a timeout, not a survivor.
func TestTCPSilence(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	var listener net.Listener
	err := netspace.Do(s.path, func() (err error) {
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
			_, _ = conn.Write([]byte("mute\n"))
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

// TestNew: every attempt is answered, then every one fails; the log has them all.
func TestNew(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	stop := s.serve("a")
	var log strings.Builder
	report, err := New{Target: "127.0.0.1:7000", Rate: 500, Count: 50, Dial: s.dial, Log: &log}.Run(context.Background())
	if err != nil || report.Attempts != 50 || report.Failed != 0 || report.Servers["a"] != 50 || report.Took.Count != 50 {
		t.Errorf("%+v, %v", report, err)
	}
	if n := strings.Count(log.String(), `"server":"a"`); n != 50 {
		t.Errorf("%d attempts in the log", n)
	}
	stop()
	report, err = New{Target: "127.0.0.1:7000", Rate: 500, Count: 50, Dial: s.dial}.Run(context.Background())
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
