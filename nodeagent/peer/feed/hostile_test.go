package feed

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// flood authenticates a gateway's clients and sends them the frames repeatedly, as fast as they
// read and without their polls. It returns the number of sent bytes.
func flood(t *testing.T, g *gateway, frames [][]byte, peers ...Peer) *atomic.Int64 {
	t.Helper()
	secure, err := serverTLS()
	if err != nil {
		t.Fatal(err)
	}
	open, err := tls.Listen("tcp4", g.peer.Addr.String(), secure)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = open.Close() })
	s := NewServer(Config{Timing: testTiming, Log: slog.New(slog.DiscardHandler)})
	s.SetIdentity(g.id)
	s.SetPeers(peers)
	sent := new(atomic.Int64)
	serve := func(conn *tls.Conn) {
		defer func() { _ = conn.Close() }()
		if err := s.authenticate(t.Context(), new(session), conn, false); err != nil {
			return
		}
		_ = conn.SetDeadline(time.Time{})
		for {
			for _, f := range frames {
				n, err := conn.Write(f)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		}
	}
	go func() {
		for {
			conn, err := open.Accept()
			if err != nil {
				return
			}
			go serve(conn.(*tls.Conn))
		}
	}()
	return sent
}

// Not parallel: allocations of other tests would count, and it uses a whole processor. A hostile
// member publishes 100,000 names and changes all of them each time, as fast as the client reads.
// Feeds between other clusters still connect within a second, and the client uses less than 128
// MiB.
func TestHostileMember(t *testing.T) {
	a, b, hostile := newGateway(t, "a"), newGateway(t, "b"), newGateway(t, "h")
	var frames [][]byte
	for round := range 2 {
		for part := range 20 {
			var changes []change
			if round == 0 && part == 0 {
				removed := change{Cluster: "h"}
				changes = append(changes, removed, clusterChange("h", "{}"))
			}
			for i := range 5000 {
				name := fmt.Sprintf("e%d", part*5000+i)
				changes = append(changes, setRawExport("h", name, fmt.Sprintf(`{"namespace":"n","name":"%s","ready":%t}`, name, round == 0)))
			}
			raw, err := encodeFrame(update{Version: 1, Changes: changes})
			if err != nil {
				t.Fatal(err)
			}
			frames = append(frames, raw)
		}
	}
	sent := flood(t, hostile, frames, a.peer)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	runtime.GC()
	before := heap()
	c := startClient(t, a.id, testTiming, hostile.peer)
	// However slow the machine is.
	for have := int64(0); have <= 16<<20; have = sent.Load() {
		await(t, "more of the flood", func() bool { return sent.Load() > have })
	}
	begin, peak, best := time.Now(), int64(0), time.Hour
	for range 5 {
		s := startServer(t, b, "", a.peer)
		up := time.Now()
		publish(t, s, stateOf("b", ready("one")))
		c.SetPeers([]Peer{hostile.peer, b.peer}, nil)
		await(t, "an honest feed", func() bool {
			peak = max(peak, heap()-before)
			return len(c.Snapshot()["b"].Exports) == 1
		})
		best = min(best, time.Since(up)) // a busy machine may be slower at times
		c.SetPeers([]Peer{hostile.peer}, nil)
		s.stop()
		await(t, "its end", func() bool { return len(c.Snapshot()["b"].Exports) == 0 })
	}
	t.Logf("%d MiB/s, %s to connect, %d MiB", sent.Load()>>20/max(1, int64(time.Since(begin)/time.Second)), best, peak>>20)
	if best > time.Second {
		t.Errorf("the fastest of the other feeds connected after %s", best)
	}
	if peak > 128<<20 {
		t.Errorf("the heap grew by %d MiB", peak>>20)
	}
}
