package feed

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// dialAs connects and greets by hand.
func dialAs(t *testing.T, g *gateway, peer Peer) *tls.Conn {
	t.Helper()
	client := NewClient(Config{Timing: fast, Log: slog.New(slog.DiscardHandler)})
	var conn *tls.Conn
	await(t, "a connection", func() bool {
		var err error
		conn, err = client.connect(context.Background(), peer, func(conn *tls.Conn) error { return clientHandshake(conn, g.id, peer, 1) })
		return err == nil
	})
	t.Cleanup(func() { _ = conn.NetConn().Close() })
	return conn
}

func TestServerDropsBadSubscribers(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	patient := fast
	patient.FrameTimeout = time.Hour // so that only what is tested ends a session
	s := startTimed(t, patient, b, "", a.peer)
	sessions := func() int {
		s.Server.mu.Lock()
		defer s.Server.mu.Unlock()
		return len(s.sessions)
	}
	oversized := dialAs(t, a, b.peer)
	if _, err := oversized.Write(binary.BigEndian.AppendUint32(nil, maxHello+1)); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, oversized)
	talker := dialAs(t, a, b.peer)
	raw, _ := pack(frame{Kind: kindSnapshot, Clusters: []update{{Cluster: "a"}}})
	if _, err := talker.Write(raw); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, talker)
	await(t, "the end of all sessions", func() bool { return sessions() == 0 })
	var conns []*tls.Conn
	for range maxPerClient + 1 {
		conns = append(conns, dialAs(t, a, b.peer))
	}
	awaitClosed(t, conns[0])
	if n := sessions(); n > maxPerClient {
		t.Errorf("%d sessions of one client", n)
	}
}

func TestServerDropsMuteSubscriber(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	timing := fast
	timing.FrameTimeout = 200 * time.Millisecond
	startTimed(t, timing, b, "", a.peer)
	awaitClosed(t, dialAs(t, a, b.peer)) // it sends no heartbeat
}

// awaitClosed reads until the server hangs up.
func awaitClosed(t *testing.T, conn *tls.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err := io.Copy(io.Discard, conn)
	if timeout, is := err.(net.Error); is && timeout.Timeout() {
		t.Fatal("the server keeps the connection")
	}
}

func TestSlowSubscriberIsDropped(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	timing := fast
	timing.FrameTimeout = 300 * time.Millisecond
	s := startTimed(t, timing, b, "", a.peer)
	conn := dialAs(t, a, b.peer)
	stop := make(chan struct{})
	defer close(stop)
	go func() { // alive, but it reads nothing
		raw, _ := pack(frame{Kind: kindHeartbeat})
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				if _, err := conn.Write(raw); err != nil {
					return
				}
			}
		}
	}()
	await(t, "the session", func() bool { s.Server.mu.Lock(); defer s.Server.mu.Unlock(); return len(s.sessions) == 1 })
	for i := 0; ; i++ {
		// Random, so that every state is all new.
		var hosts []model.ExportHost
		for range 20000 {
			var raw [16]byte
			_, _ = rand.Read(raw[:])
			hosts = append(hosts, model.ExportHost{IPs: []netip.Addr{netip.AddrFrom16(raw)}})
		}
		var exports []model.ExportState
		for n := range 5 {
			exports = append(exports, ready("e"+string(rune('a'+n)), hosts[n*4000:(n+1)*4000]...))
		}
		publish(t, s, live("b", exports...))
		s.Server.mu.Lock()
		open := len(s.sessions)
		s.Server.mu.Unlock()
		if open == 0 {
			return
		}
		if i > 300 {
			t.Fatal("a subscriber that reads nothing is kept")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestOversizedExportIsLeftOutAtTheSource: it is told, and the others go on.
func TestOversizedExportIsLeftOutAtTheSource(t *testing.T) {
	t.Parallel()
	s := NewServer(Config{Timing: fast, Log: slog.New(slog.DiscardHandler)})
	good := live("b", ready("one"))
	if err := s.SetLive(good); err != nil {
		t.Fatal(err)
	}
	before, _ := s.own.load()
	huge := ready("huge")
	for range 100000 {
		huge.Hosts = append(huge.Hosts, model.ExportHost{IPs: []netip.Addr{netip.MustParseAddr("242.2.0.5")}})
	}
	if err := s.SetLive(live("b", huge, ready("one"))); err == nil || !strings.Contains(err.Error(), "sample/huge") {
		t.Errorf("got %v", err)
	}
	if after, _ := s.own.load(); !after.clusters["b"].equal(before.clusters["b"]) {
		t.Error("the other export did not stay")
	}
	if err := s.SetLive(good); err != nil {
		t.Fatal(err)
	}
	before, _ = s.own.load()
	if err := s.SetLive(good); err != nil {
		t.Fatal(err)
	}
	if after, _ := s.own.load(); after != before {
		t.Error("the same state made a new edition")
	}
}
