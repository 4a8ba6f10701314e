package verify

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"

	"hawser.dev/hawser/nodeagent/status"
)

// insideEnv marks the process that has its own network namespace.
const insideEnv = "HAWSER_VERIFY_TEST_INSIDE"

// inNamespace runs the test in a process with its own network namespace: lookups and connections
// may use any thread. It returns true in that process.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	}
	if os.Geteuid() != 0 {
		if os.Getenv("REQUIRE_KERNEL") == "1" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

func listen(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

// accepted listens. It returns a function that closes the listener and returns the number of
// accepted connections.
func accepted(t *testing.T, address string) func() int {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	n, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n++
			_ = conn.Close()
		}
	}()
	return func() int { _ = l.Close(); <-done; return n }
}

// udp answers each datagram with the result of reply; nil = no answer.
func udp(t *testing.T, address string, reply func([]byte) []byte) {
	t.Helper()
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if out := reply(buf[:n]); out != nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
}

const server = "127.9.0.53:53"

// zone serves records, and NXDOMAIN for other names.
func zone(t *testing.T, records ...string) {
	t.Helper()
	all := map[string][]dns.RR{}
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		all[rr.Header().Name] = append(all[rr.Header().Name], rr)
	}
	conn, err := net.ListenPacket("udp", server)
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Authoritative = true
		found, exists := all[q.Question[0].Name]
		if !exists {
			m.Rcode = dns.RcodeNameError
		}
		for _, rr := range found {
			if rr.Header().Rrtype == q.Question[0].Qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
		_ = w.WriteMsg(m)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown(); <-done })
}

func TestAll(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	zone(t,
		"web.shop.svc.set. 5 A 127.9.0.1", "half.shop.svc.set. 5 A 127.9.0.1", "half.shop.svc.set. 5 A 127.9.0.2",
		"both.shop.svc.set. 5 A 127.9.0.1", "both.shop.svc.set. 5 AAAA ::1",
		"_http._tcp.pods.shop.svc.set. 5 SRV 0 50 8080 a.pods.shop.svc.set.", "a.pods.shop.svc.set. 5 A 127.9.0.3",
		"plain.shop.svc.set. 5 A 127.9.0.1", "many.shop.svc.set. 5 A 127.9.0.1", "many.shop.svc.set. 5 A 127.9.0.4", "many.shop.svc.set. 5 A 127.9.0.5",
		"many.shop.svc.set. 5 A 127.9.0.6", "empty.shop.svc.set. 5 TXT \"nothing\"",
		"metadata.shop.svc.set. 5 A 127.8.0.1", "_http._tcp.astray.shop.svc.set. 5 SRV 0 50 80 web.shop.svc.set.",
	)
	elsewhere := accepted(t, "127.8.0.1:80")
	for _, at := range []string{"127.9.0.1:80", "[::1]:80", "127.9.0.3:8080", "127.9.0.4:80", "127.9.0.5:80"} {
		listen(t, at)
	}
	udp(t, "127.9.0.1:7", func(in []byte) []byte { return bytes.Repeat([]byte("x"), 60_000) })
	udp(t, "127.9.0.1:53", func(in []byte) []byte {
		if m := new(dns.Msg); m.Unpack(in) != nil || m.Question[0].Qtype != dns.TypeNS {
			return nil
		}
		return in
	})
	udp(t, "127.9.0.1:9", func([]byte) []byte { return nil })
	http := []status.CheckPort{{Name: "http", Protocol: "TCP", Number: 80}}
	check := func(name string, ports ...status.CheckPort) status.Check {
		if ports == nil {
			ports = http
		}
		return status.Check{Export: "shop/" + name, Name: name + ".shop.svc.set", Ports: ports}
	}
	port := func(protocol string, number uint16) status.CheckPort {
		return status.CheckPort{Protocol: protocol, Number: number}
	}
	pods, headless, skip, part, unready := check("pods"), check("plain", port("TCP", 80)), check("web"), check("web"), check("web")
	pods.Headless, headless.Headless = true, true
	skip.Skipped, part.Cluster, unready.NotReady = "the export does not allow this cluster", "g2", "no endpoint is ready"
	astray := check("astray")
	astray.Headless = true
	v := Verifier{Server: netip.MustParseAddrPort(server), Timeout: 2 * time.Second,
		Prefixes: []netip.Prefix{netip.MustParsePrefix("127.9.0.0/24"), netip.MustParsePrefix("::1/128")}}
	tests := []struct {
		check   status.Check
		reached []string
		error   string
		unknown string
		verdict status.Verdict
	}{
		{check("web"), []string{"127.9.0.1:80"}, "", "", status.VerdictAnswered},
		{check("half"), []string{"127.9.0.1:80"}, "connect to 127.9.0.2:80: connect: connection refused", "", status.VerdictFailed},
		{check("both"), []string{"127.9.0.1:80", "[::1]:80"}, "", "", status.VerdictAnswered},
		{pods, []string{"127.9.0.3:8080"}, "", "", status.VerdictAnswered},
		{headless, []string{"127.9.0.1:80"}, "", "", status.VerdictAnswered},
		{check("many"), []string{"127.9.0.1:80", "127.9.0.4:80", "127.9.0.5:80"}, "", "", status.VerdictAnswered},
		{check("gone"), nil, "look up gone.shop.svc.set: no such host", "", status.VerdictFailed},
		{check("empty"), nil, "look up empty.shop.svc.set: no such host", "", status.VerdictFailed},
		{skip, nil, "", "", status.VerdictSkipped},
		{part, []string{"127.9.0.1:80"}, "", "", status.VerdictAnswered},
		{unready, nil, "no endpoint is ready", "", status.VerdictFailed},
		// exchange reads one byte of a huge reply.
		{check("web", port("UDP", 7)), []string{"127.9.0.1:7/UDP"}, "", "", status.VerdictAnswered},
		{check("web", port("UDP", 53)), []string{"127.9.0.1:53/UDP"}, "", "", status.VerdictAnswered},
		{check("web", port("TCP", 80), port("UDP", 9)), []string{"127.9.0.1:80"}, "", "no reply from 127.9.0.1:9/UDP: UDP servers may send none", status.VerdictUnknown},
		{check("web", port("UDP", 10)), nil, "send to 127.9.0.1:10/UDP: read: connection refused", "", status.VerdictFailed},
		// Names that resolve to an address outside Prefixes get no connection, although a
		// server listens there.
		{check("metadata"), nil, "look up metadata.shop.svc.set: the answer is 127.8.0.1, no address of the clusterset", "", status.VerdictFailed},
		{astray, nil, "look up astray.shop.svc.set: its SRV record names web.shop.svc.set, a host outside the service", "", status.VerdictFailed},
	}
	checks := make([]status.Check, len(tests))
	for i, tt := range tests {
		checks[i] = tt.check
	}
	for i, have := range v.All(t.Context(), checks) {
		tt := tests[i]
		if tried := have.Skipped == "" && have.NotReady == ""; (have.Micros > 0) != tried {
			t.Errorf("%s took %d µs", have.Name, have.Micros)
		}
		have.Micros = 0
		if text := cmp.Diff(status.Verified{Check: tt.check, Reached: tt.reached, Error: tt.error, Unknown: tt.unknown}, have); text != "" {
			t.Errorf("(-want +got)\n%s", text)
		}
		if have.Verdict() != tt.verdict {
			t.Errorf("%s: %s, want %s", have.Name, have.Verdict(), tt.verdict)
		}
	}
	if n := elsewhere(); n != 0 {
		t.Errorf("%d connections to an address outside the prefixes", n)
	}
}

// TestNoTime checks that a check that did not start has an error.
func TestNoTime(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	have := Verifier{Timeout: time.Second}.All(ctx, []status.Check{{Name: "a"}, {Name: "b", Skipped: "why"}})
	if len(have) != 2 || !strings.HasPrefix(have[0].Error, "not tested") || have[1].Skipped != "why" || have[1].Error != "" {
		t.Errorf("%+v", have)
	}
}
