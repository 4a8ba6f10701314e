package feed

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/model"
)

// dialAs connects and authenticates as a gateway.
func dialAs(t *testing.T, g *gateway, peer Peer) *tls.Conn {
	t.Helper()
	client := NewClient(Config{Timing: testTiming, Log: slog.New(slog.DiscardHandler)})
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
	patient := testTiming
	patient.FrameTimeout = time.Hour // only the tested bounds end a session
	s := startServerTiming(t, patient, b, "", a.peer)
	sessions := func() int {
		s.Server.mu.Lock()
		defer s.Server.mu.Unlock()
		return len(s.sessions)
	}
	oversized := dialAs(t, a, b.peer)
	if _, err := oversized.Write(binary.BigEndian.AppendUint32(nil, maxSmallFrame+1)); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, oversized)
	confused := dialAs(t, a, b.peer)
	if err := writeFrame(confused, poll{Version: 7}); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, confused)
	await(t, "the end of all sessions", func() bool { return sessions() == 0 })
	var conns []*tls.Conn
	for range maxSessionsPerAddr + 1 {
		conns = append(conns, dialAs(t, a, b.peer))
	}
	awaitClosed(t, conns[0])
	if n := sessions(); n > maxSessionsPerAddr {
		t.Errorf("%d sessions of one address", n)
	}
}

func TestServerDropsMuteSubscriber(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	timing := testTiming
	timing.FrameTimeout = 200 * time.Millisecond
	startServerTiming(t, timing, b, "", a.peer)
	awaitClosed(t, dialAs(t, a, b.peer)) // it sends no poll
}

// awaitClosed reads until the server closes the connection.
func awaitClosed(t *testing.T, conn *tls.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err := io.Copy(io.Discard, conn)
	if timeout, is := err.(net.Error); is && timeout.Timeout() {
		t.Fatal("the server keeps the connection")
	}
}

// TestSlowSubscriberIsDropped uses a subscriber that polls and does not read the reply.
func TestSlowSubscriberIsDropped(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	timing := testTiming
	timing.FrameTimeout = 300 * time.Millisecond
	s := startServerTiming(t, timing, b, "", a.peer)
	var exports []model.ExportState
	for i := range 25 { // 25 exports of 500 kB: more than the socket buffers of both ends store (10 MB)
		e := ready(fmt.Sprintf("e%d", i))
		for range 10000 {
			e.Hosts = append(e.Hosts, model.ExportHost{Label: strings.Repeat("h", 20), IPs: []netip.Addr{netip.MustParseAddr("242.2.0.5")}})
		}
		exports = append(exports, e)
	}
	publish(t, s, stateOf("b", exports...))
	conn := dialAs(t, a, b.peer)
	sessions := func() int { s.Server.mu.Lock(); defer s.Server.mu.Unlock(); return len(s.sessions) }
	if err := writeFrame(conn, poll{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the session", func() bool { return sessions() == 0 })
}

// TestSlowSubscriberSkipsVersions checks that a slow subscriber receives only the current version,
// so that no queue grows.
func TestSlowSubscriberSkipsVersions(t *testing.T) {
	t.Parallel()
	a, b := newGateway(t, "a"), newGateway(t, "b")
	s := startServerTiming(t, Timing{FrameTimeout: time.Hour}, b, "", a.peer)
	conn := dialAs(t, a, b.peer)
	r := receiverOf(Peer{Cluster: "b"}, ignore)
	var last string
	for i := range 3 {
		for j := range 100 {
			last = fmt.Sprintf("e%d-%d", i, j)
			publish(t, s, stateOf("b", ready(last)))
		}
		if err := writeFrame(conn, poll{Version: r.version}); err != nil {
			t.Fatal(err)
		}
		var u update
		if err := readFrame(conn, maxFrame, &u); err != nil {
			t.Fatal(err)
		}
		if _, err := r.apply(u); err != nil {
			t.Fatal(err)
		}
		if have := r.states["b"].State.Exports; len(u.Changes) > 3 || len(have) != 1 || have[0].Name != last {
			t.Errorf("reply %d has %d changes, the exports are %v, want %s", i, len(u.Changes), have, last)
		}
	}
}

// TestOversizedExportIsOmittedAtTheSource checks that an oversized export is reported and the
// others remain.
func TestOversizedExportIsOmittedAtTheSource(t *testing.T) {
	t.Parallel()
	s := NewServer(Config{Timing: testTiming, Log: slog.New(slog.DiscardHandler)})
	good := stateOf("b", ready("one"))
	if err := s.Publish(good); err != nil {
		t.Fatal(err)
	}
	before, _ := s.local.load()
	huge := ready("huge")
	for range 100000 {
		huge.Hosts = append(huge.Hosts, model.ExportHost{IPs: []netip.Addr{netip.MustParseAddr("242.2.0.5")}})
	}
	if err := s.Publish(stateOf("b", huge, ready("one"))); err == nil || !strings.Contains(err.Error(), "sample/huge") {
		t.Errorf("got %v", err)
	}
	if after, _ := s.local.load(); after != before {
		t.Error("the other export did not remain")
	}
	if err := s.Publish(good); err != nil {
		t.Fatal(err)
	}
	before, _ = s.local.load()
	if err := s.Publish(good); err != nil {
		t.Fatal(err)
	}
	if after, _ := s.local.load(); after != before {
		t.Error("an equal state is a new version")
	}
}
