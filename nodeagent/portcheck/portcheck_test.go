package portcheck

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"
)

// run starts a check until the test ends.
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

// free gives a UDP port that nobody has.
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
			t.Fatalf("not within ten seconds: %s", what)
		}
	}
}

// TestCheck: two gateways hear each other, whichever begins first, and one that only dials
// out is heard too; a stranger is not.
func TestCheck(t *testing.T) {
	t.Parallel()
	a, b := free(t), free(t)
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	key := []byte("key")
	first := run(t, Config{Ports: []int{a}, Targets: []string{at(b)}, Key: key})
	until(t, "the first asks", func() bool { return first.Report().Targets[0].Sent > 1 })
	if got := first.Report().Targets[0]; got.Answered != 0 {
		t.Fatalf("somebody answered: %+v", got)
	}
	second := run(t, Config{Ports: []int{b}, Targets: []string{at(a), net.JoinHostPort("localhost", strconv.Itoa(a))}, Key: key})
	dials := run(t, Config{Targets: []string{at(a)}, Key: key})
	stranger := run(t, Config{Targets: []string{at(a)}, Key: []byte("other")})
	for name, target := range map[string]func() Target{
		"first": func() Target { return first.Report().Targets[0] }, "second": func() Target { return second.Report().Targets[0] },
		"by name": func() Target { return second.Report().Targets[1] }, "dials": func() Target { return dials.Report().Targets[0] },
	} {
		until(t, name+" is answered", func() bool { r := target(); return r.Answered > 0 && r.Largest == 1500 && r.RTT > 0 && r.Error == "" })
		if r := target(); r.ClockOffset > 1000 || r.ClockOffset < -1000 {
			t.Errorf("%s: one clock is %d ms from itself", name, r.ClockOffset)
		}
	}
	until(t, "the first heard others", func() bool { return first.Report().Ports[0].Requests > 0 })
	until(t, "the stranger asks", func() bool { return stranger.Report().Targets[0].Sent > 3 })
	if got := stranger.Report().Targets[0]; got.Answered != 0 {
		t.Errorf("a stranger was answered: %+v", got)
	}
}

// TestWrong: what cannot work is said.
func TestWrong(t *testing.T) {
	t.Parallel()
	port := free(t)
	taken := run(t, Config{Ports: []int{port}, Key: []byte("key")})
	if got := taken.Report().Ports[0]; got.Error != "" {
		t.Fatal(got.Error)
	}
	late := run(t, Config{Ports: []int{port}, Targets: []string{"no-such-host.invalid:1"}, Key: []byte("key")})
	if got := late.Report().Ports[0]; got.Error == "" {
		t.Error("a port was opened twice")
	}
	until(t, "the name is told", func() bool { return late.Report().Targets[0].Error != "" })
	if _, err := New(Config{Targets: []string{"nowhere"}}); err == nil {
		t.Error("a target without a port was taken")
	}
}
