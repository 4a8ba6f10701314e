package pathmtu

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/peer/transport"
	"hawser.dev/hawser/nodeagent/peer/wire"
)

const self = "g1/a"

func links(n, carrying int) []Link {
	var out []Link
	for i := range n {
		out = append(out, Link{
			Peer: fmt.Sprint(i), Source: link.Source, Addr: netip.AddrFrom4([4]byte{241, 1, byte(i >> 8), byte(i)}),
			MTU: 1420, InUse: i < carrying,
		})
	}
	return out
}

// TestBudget counts the probes for three thousand links, few of them in use.
func TestBudget(t *testing.T) {
	t.Parallel()
	f := New(Config{Log: slog.New(slog.DiscardHandler)})
	f.Set(self, nil, links(3000, 100))
	traffic := map[string]bool{}
	for i := range 100 {
		traffic[fmt.Sprint(i)] = true
	}
	f.SetTraffic(traffic)
	begin := time.Now()
	bytes, answered := 0, map[netip.Addr]bool{}
	const span = 60 * time.Second
	for at := time.Duration(0); at < span; at += coalesceTime {
		now := begin.Add(at)
		out, _ := f.Tick(now)
		for _, o := range out {
			m, err := wire.Decode(o.Raw)
			if err != nil || !isComplete(m, o.To.Addr()) {
				t.Fatalf("%+v: %v", m, err)
			}
			bytes += int(m.Size.Bytes)
			answered[o.To.Addr()] = true
			m.From, m.To, m.Size.Reply = m.To, m.From, true
			packet := transport.Packet{Local: o.From, From: o.To, Message: m}
			f.Receive(now, packet)
		}
	}
	if len(answered) != 3000 {
		t.Errorf("%d of 3000 links probed in a minute", len(answered))
	}
	if rate := float64(bytes) / span.Seconds(); rate > 150_000 {
		t.Errorf("%.0f bytes a second", rate)
	}
	for _, p := range f.Snapshot() {
		if p.State != OK {
			t.Fatalf("%+v", p)
		}
	}
}

func TestSetKeeps(t *testing.T) {
	t.Parallel()
	f := New(Config{Log: slog.New(slog.DiscardHandler)})
	now := time.Now()
	set := links(3, 1)
	f.Set(self, nil, set)
	f.links[linkKey{set[1].Source, set[1].Addr}].setResult(now, BlackHole, 1300)
	f.links[linkKey{set[2].Source, set[2].Addr}].setResult(now, BlackHole, 1300)
	set[1].InUse, set[2].MTU = true, 1400
	f.Set(self, nil, set[1:])
	got := f.Snapshot()
	if len(got) != 2 || got[0].PathMTU != 1300 || got[0].State != BlackHole || got[1].PathMTU != 1400 || got[1].State != Unknown {
		t.Errorf("snapshot %+v", got)
	}
	out, _ := f.Tick(time.Now())
	if len(out) == 0 || out[0].To.Addr() != set[1].Addr {
		t.Error("a link that becomes active is not probed")
	}
}

// TestSetTraffic checks that a link in use is tried at once. After that it is tried as often as
// others, until its cluster has traffic.
func TestSetTraffic(t *testing.T) {
	t.Parallel()
	f := New(Config{Log: slog.New(slog.DiscardHandler)})
	set := links(2, 1)
	f.Set(self, nil, set)
	tries := func(from, until time.Duration) (n int) {
		begin := time.Now()
		for at := from; at < until; at += coalesceTime {
			now := begin.Add(at)
			out, _ := f.Tick(now)
			for _, o := range out {
				if o.To.Addr() != set[0].Addr {
					continue
				}
				n++
				m, err := wire.Decode(o.Raw)
				if err != nil {
					t.Fatal(err)
				}
				m.From, m.To, m.Size.Reply = m.To, m.From, true
				packet := transport.Packet{Local: o.From, From: o.To, Message: m}
				f.Receive(now, packet)
			}
		}
		return n
	}
	if n := tries(0, 20*time.Second); n != 1 {
		t.Errorf("%d tries in 20 s without traffic, want 1", n)
	}
	f.SetTraffic(map[string]bool{"0": true, "1": true})
	if n := tries(20*time.Second, 40*time.Second); n < 4 || n > 5 {
		t.Errorf("%d tries in 20 s with traffic, want 4 or 5", n)
	}
	f.SetTraffic(nil)
	if n := tries(40*time.Second, 60*time.Second); n > 1 {
		t.Errorf("%d tries in 20 s after the traffic, want 1 at most", n)
	}
}

func TestAdmits(t *testing.T) {
	t.Parallel()
	f := New(Config{Log: slog.New(slog.DiscardHandler)})
	set := links(1, 1)
	f.Set(self, nil, set)
	now := time.Now()
	if f.allowReply(now, netip.MustParseAddr("241.9.9.9"), wire.HashID("0")) {
		t.Error("a stranger gets a reply")
	}
	if f.allowReply(now, set[0].Addr, wire.HashID("1")) {
		t.Error("a foreign sender at a gateway's address gets a reply")
	}
	n := 0
	for range 2 * replyRate {
		if f.allowReply(now, set[0].Addr, wire.HashID("0")) {
			n++
		}
	}
	if n != replyRate || f.Stats().Limited != replyRate || f.Stats().Foreign != 2 {
		t.Errorf("%d replies at one time, stats %+v", n, f.Stats())
	}
	if !f.allowReply(now.Add(time.Second), set[0].Addr, wire.HashID("0")) {
		t.Error("no reply a second later")
	}
}
