package feed

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// flood answers a gateway's clients and sends them the frames again and again, as fast as
// they take them. It gives how many bytes went out.
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
	s := NewServer(Config{Timing: fast, Log: slog.New(slog.DiscardHandler)})
	s.SetIdentity(g.id)
	s.SetPeers(peers)
	sent := new(atomic.Int64)
	serve := func(conn *tls.Conn) {
		defer func() { _ = conn.Close() }()
		if _, err := s.welcome(t.Context(), conn, &listener{}); err != nil {
			return
		}
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

// Not parallel: what other tests allocate would count, and it takes all of a processor.
// A member that turned says 100,000 names, anew each time, as fast as it is heard. Feeds
// between honest clusters come up within a second meanwhile, and the memory that it takes
// stays below 128 MiB.
func TestHostileMember(t *testing.T) {
	a, b, hostile := newGateway(t, "a"), newGateway(t, "b"), newGateway(t, "h")
	var frames [][]byte
	for round := range 2 {
		kind := kindSnapshot
		for part := range 20 {
			var exports []json.RawMessage
			for i := range 5000 {
				exports = append(exports, json.RawMessage(fmt.Sprintf(`{"namespace":"n","name":"e%d","ready":%t}`, part*5000+i, round == 0)))
			}
			raw, err := pack(frame{Kind: kind, Clusters: []update{{Cluster: "h", Exports: exports}}})
			if err != nil {
				t.Fatal(err)
			}
			frames, kind = append(frames, raw), kindDelta
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
	c := startClient(t, a.id, fast, hostile.peer)
	// However slow the machine is, as long as it comes.
	for have := int64(0); have <= 16<<20; have = sent.Load() {
		await(t, "more of the flood", func() bool { return sent.Load() > have })
	}
	begun, most, best := time.Now(), int64(0), time.Hour
	for range 5 {
		s := startServer(t, b, "", a.peer)
		up := time.Now()
		publish(t, s, live("b", ready("one")))
		c.SetPeers([]Peer{hostile.peer, b.peer})
		await(t, "an honest feed", func() bool {
			most = max(most, heap()-before)
			return len(c.Snapshot()["b"].Exports) == 1
		})
		best = min(best, time.Since(up)) // a busy machine may take longer now and then
		c.SetPeers([]Peer{hostile.peer})
		s.stop()
		await(t, "its end", func() bool { return len(c.Snapshot()["b"].Exports) == 0 })
	}
	t.Logf("%d MiB/s, %s to come up, %d MiB", sent.Load()>>20/max(1, int64(time.Since(begun)/time.Second)), best, most>>20)
	if best > time.Second {
		t.Errorf("the best of the honest feeds came up after %s", best)
	}
	if most > 128<<20 {
		t.Errorf("the heap grew by %d MiB", most>>20)
	}
}
