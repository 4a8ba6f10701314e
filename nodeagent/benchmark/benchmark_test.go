package benchmark

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// server runs a server until the test ends, and returns its address.
func server(t *testing.T, key []byte) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, listener, key) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func key(c byte) []byte { return []byte(strings.Repeat(string(c), KeyBytes)) }

func TestMeasure(t *testing.T) {
	t.Parallel()
	r := Measure(t.Context(), Config{Target: server(t, key('k')), Key: key('k'), For: 100 * time.Millisecond, Streams: 2, Wait: time.Minute})
	if r.Error != "" || r.Failed != 0 || r.Throughput <= 0 || r.Connections <= 0 || r.RTT <= 0 || r.RTT99 < r.RTT {
		t.Errorf("%+v", r)
	}
}

// TestMeasureWaits checks that a client waits for a missing server, and then returns an error.
func TestMeasureWaits(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	r := Measure(t.Context(), Config{Target: listener.Addr().String(), Key: key('k'), For: time.Second, Streams: 1, Wait: 300 * time.Millisecond})
	if !strings.HasPrefix(r.Error, "no answer within 300ms: connect: ") || r.Throughput != 0 {
		t.Errorf("%+v", r)
	}
}

// TestWrongKey checks that a client without the key gets no reply, not even an echo.
func TestWrongKey(t *testing.T) {
	t.Parallel()
	conn, err := net.Dial("tcp", server(t, key('k')))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write(append(key('x'), modeEcho, 'h', 'i')); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(conn); len(got) > 0 {
		t.Errorf("a client without the key received %q", got)
	}
}

func TestServeKey(t *testing.T) {
	t.Parallel()
	if err := Serve(t.Context(), nil, []byte("short")); err == nil || err.Error() != "key has 5 bytes instead of 16" {
		t.Error(err)
	}
}
