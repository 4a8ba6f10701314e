package portcheck

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"
)

// run runs a check until the test ends.
func run(t *testing.T, c Config) *Check {
	t.Helper()
	c.Every = 10 * time.Millisecond
	k, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); k.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return k
}

// free returns a free UDP port.
func free(t *testing.T) int {
	t.Helper()
	c, err := net.ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	return c.LocalAddr().(*net.UDPAddr).Port
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout after ten seconds: %s", what)
		}
	}
}

// TestCheck checks that two gateways get replies from each other in either order of start, and that
// a gateway without an endpoint gets replies. A client without the key gets no reply.
func TestCheck(t *testing.T) {
	t.Parallel()
	a, b := free(t), free(t)
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	key := []byte("key")
	first := run(t, Config{Ports: []int{a}, Targets: []string{at(b)}, Key: key})
	until(t, "requests of the first", func() bool { return first.Report().Targets[0].Sent > 1 })
	if got := first.Report().Targets[0]; got.Answered != 0 {
		t.Fatalf("unexpected reply: %+v", got)
	}
	second := run(t, Config{Ports: []int{b}, Targets: []string{at(a), net.JoinHostPort("localhost", strconv.Itoa(a))}, Key: key})
	dials := run(t, Config{Targets: []string{at(a)}, Key: key})
	wrongKey := run(t, Config{Targets: []string{at(a)}, Key: []byte("other")})
	for name, target := range map[string]func() Target{
		"first": func() Target { return first.Report().Targets[0] }, "second": func() Target { return second.Report().Targets[0] },
		"by name": func() Target { return second.Report().Targets[1] }, "dials": func() Target { return dials.Report().Targets[0] },
	} {
		until(t, name+" gets a reply", func() bool { r := target(); return r.Answered > 0 && r.Largest == 1500 && r.RTT > 0 && r.Error == "" })
		if r := target(); r.ClockOffset > 1000 || r.ClockOffset < -1000 {
			t.Errorf("%s: the clock has an offset of %d ms to itself", name, r.ClockOffset)
		}
	}
	until(t, "requests at the first", func() bool { return first.Report().Ports[0].Requests > 0 })
	until(t, "requests without the key", func() bool { return wrongKey.Report().Targets[0].Sent > 3 })
	if got := wrongKey.Report().Targets[0]; got.Answered != 0 {
		t.Errorf("reply to a request without the key: %+v", got)
	}
}

// TestErrors checks that a port in use and an unknown name are reported.
func TestErrors(t *testing.T) {
	t.Parallel()
	port := free(t)
	holder := run(t, Config{Ports: []int{port}, Key: []byte("key")})
	if got := holder.Report().Ports[0]; got.Error != "" {
		t.Fatal(got.Error)
	}
	late := run(t, Config{Ports: []int{port}, Targets: []string{"no-such-host.invalid:1"}, Key: []byte("key")})
	if got := late.Report().Ports[0]; got.Error == "" {
		t.Error("a port was opened twice")
	}
	until(t, "the error of the name", func() bool { return late.Report().Targets[0].Error != "" })
	if _, err := New(Config{Targets: []string{"nowhere"}}); err == nil {
		t.Error("a target without a port was accepted")
	}
}
