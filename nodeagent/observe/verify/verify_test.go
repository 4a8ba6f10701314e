package verify

import (
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

// insideEnv says that this process has a network namespace of its own.
const insideEnv = "HAWSER_VERIFY_TEST_INSIDE"

// inNamespace runs the test in a process with a network namespace of its own, as lookups
// and connections are made by any thread. It gives true in that process.
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

const server = "127.9.0.53:53"

// zone answers with these records, and that there is no such name.
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
	)
	for _, at := range []string{"127.9.0.1:80", "[::1]:80", "127.9.0.3:8080", "127.9.0.4:80", "127.9.0.5:80"} {
		listen(t, at)
	}
	http := []Port{{Name: "http", Number: 80}}
	check := func(name string) Check {
		return Check{Export: "shop/" + name, Name: name + ".shop.svc.set.", Ports: http}
	}
	pods, plain, skip, part := check("pods"), check("plain"), check("web"), check("web")
	pods.Headless, plain.Headless, plain.Ports = true, true, []Port{{Number: 80}}
	skip.Skip, part.Cluster = "no endpoint is ready", "g2"
	v := Verifier{Server: netip.MustParseAddrPort(server), Timeout: 5 * time.Second}
	have := v.All(t.Context(), []Check{check("web"), check("half"), check("both"), pods, plain, check("many"), check("gone"), check("empty"), skip, part})
	for i := range have {
		if (have[i].Micros > 0) != (have[i].Skipped == "") {
			t.Errorf("%s took %d µs", have[i].Name, have[i].Micros)
		}
		have[i].Micros = 0
	}
	result := func(name, failed string, reached ...string) status.Verified {
		return status.Verified{Export: "shop/" + name, Name: name + ".shop.svc.set", Reached: reached, Error: failed}
	}
	want := []status.Verified{
		result("web", "", "127.9.0.1:80"),
		result("half", "connect to 127.9.0.2:80: connect: connection refused", "127.9.0.1:80"),
		result("both", "", "127.9.0.1:80", "[::1]:80"),
		result("pods", "", "127.9.0.3:8080"),
		result("plain", "", "127.9.0.1:80"),
		result("many", "", "127.9.0.1:80", "127.9.0.4:80", "127.9.0.5:80"),
		result("gone", "look up gone.shop.svc.set: no such host"),
		result("empty", "look up empty.shop.svc.set: no such host"),
		{Export: "shop/web", Name: "web.shop.svc.set", Skipped: "no endpoint is ready"},
		{Export: "shop/web", Cluster: "g2", Name: "web.shop.svc.set", Reached: []string{"127.9.0.1:80"}},
	}
	if text := cmp.Diff(want, have); text != "" {
		t.Errorf("(-want +got)\n%s", text)
	}
}

// TestNoTime: what was not begun says so, and nothing is asked.
func TestNoTime(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	have := Verifier{Timeout: time.Second}.All(ctx, []Check{{Name: "a."}, {Name: "b.", Skip: "why"}})
	if len(have) != 2 || !strings.HasPrefix(have[0].Error, "not tried") || have[1].Skipped != "why" || have[1].Error != "" {
		t.Errorf("%+v", have)
	}
}
