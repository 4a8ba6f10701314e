package flow

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"hawser.dev/hawser/lab/netspace"
)

// log is a flow of one packet a millisecond of which some came back, each after
// half a millisecond.
func log(count int, back func(int) bool) *packetLog {
	l := &packetLog{}
	for i := range count {
		at := time.Duration(i) * time.Millisecond
		l.sent, l.back = append(l.sent, at), append(l.back, false)
		if back(i) {
			l.answered(uint64(i), at+time.Millisecond/2)
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
		{"nothing sent any more", outage(0, 0), 2000 * ms, 2100 * ms, 1100*ms + ms/2, 0, 0},
	}
	for _, tt := range tests {
		l := log(1000, tt.back)
		if have := l.gap(tt.from, tt.to); have != tt.gap {
			t.Errorf("%s: gap %s, want %s", tt.name, have, tt.gap)
		}
		if lost, sent := l.lost(tt.from, tt.to); lost != tt.lost || sent != tt.sent {
			t.Errorf("%s: %d of %d lost, want %d of %d", tt.name, lost, sent, tt.lost, tt.sent)
		}
	}
	l := log(1000, outage(0, 0))
	l.sent = slices.Concat(l.sent[:100], l.sent[150:])
	ends := l.sent[100] - l.sent[99]
	if have := longest(l.sent, l.sent[90], l.sent[110]); have != ends || ends < 50*ms {
		t.Errorf("the sender stood still for %s, want %s", have, ends)
	}
	twice := log(3, outage(0, 0))
	twice.answered(1, 10*ms)
	twice.answered(99, 10*ms)
	if len(twice.arrived) != 3 {
		t.Errorf("an answer that came twice, or to nothing, counts: %v", twice.arrived)
	}
}

// pod is a namespace of its own, gone with the test.
func pod(t *testing.T) Place {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	dir, err := os.MkdirTemp("", "hwflow-")
	if err != nil {
		t.Fatal(err)
	}
	if err := netspace.Prepare(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netspace.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "pod")
	if err := netspace.Create(path); err != nil {
		t.Fatal(err)
	}
	return Place(path)
}

func (p Place) loopback(up bool) error {
	return netspace.Do(string(p), func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(lo)
		}
		return netlink.LinkSetDown(lo)
	})
}

func await(t *testing.T, what string, probe func() error) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := probe()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestStall takes the network away for a moment and looks at what each flow says.
func TestStall(t *testing.T) {
	t.Parallel()
	at, to := pod(t), netip.MustParseAddrPort("127.0.0.1:7")
	server, err := Reflect(at, to.Port())
	if err != nil {
		t.Fatal(err)
	}
	packets, err := StartPackets(at, to, 500)
	if err != nil {
		t.Fatal(err)
	}
	requests, dials := StartRequests(at, to, 5*time.Millisecond), StartDials(at, to, 50)
	await(t, "the flow before", func() error { return packets.Whole(100 * time.Millisecond) })
	from := time.Now()
	if err := at.loopback(false); err != nil {
		t.Fatal(err)
	}
	await(t, "the outage", func() error {
		if gap := packets.Gap(from, time.Now()); gap < 150*time.Millisecond {
			return fmt.Errorf("gap of %s", gap)
		}
		return nil
	})
	if err := packets.Whole(100 * time.Millisecond); err == nil {
		t.Error("the flow counts as whole in the outage")
	}
	if err := at.loopback(true); err != nil {
		t.Fatal(err)
	}
	await(t, "the flow after", func() error { return packets.Whole(100 * time.Millisecond) })
	end := time.Now()
	for _, closer := range []interface{ Close() error }{packets, requests, dials, server} {
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	}
	if lost, sent := packets.Lost(from, end); lost < 50 || lost >= sent {
		t.Errorf("%d of %d packets lost in an outage of 150 ms at 500 a second", lost, sent)
	}
	longest, hindered := time.Duration(0), 0
	for _, call := range requests.Begun(from.Add(-underWay), end) {
		longest = max(longest, call.Took)
	}
	for _, call := range dials.Begun(from, end) {
		if call.Err != nil || call.Took > 100*time.Millisecond {
			hindered++
		}
	}
	if longest < 100*time.Millisecond || hindered == 0 {
		t.Errorf("longest request %s, %d new connections hindered; want 100 ms or more, and some", longest, hindered)
	}
}

// TestConnections has every kind alive, and none of those whose server is gone.
func TestConnections(t *testing.T) {
	t.Parallel()
	at, to := pod(t), netip.MustParseAddrPort("127.0.0.1:7")
	server, err := Reflect(at, to.Port())
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(at, []netip.AddrPort{to}, []*Reflector{server}, 5)
	if err != nil {
		t.Fatal(err)
	}
	alive := c.Alive(time.Now(), 5*time.Second)
	for _, kind := range Kinds() {
		if have := c.Count()[kind]; alive[kind] != 5 || have != 5 {
			t.Errorf("%s: %d of %d alive, want 5 of 5", kind, alive[kind], have)
		}
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if alive := c.Alive(time.Now(), 5*time.Second); len(alive) != 0 {
		t.Errorf("alive without a server: %v", alive)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
