package nftrace

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/status"
)

// inNamespace moves the test's thread to its own network namespace, with the loopback device up.
// The thread ends with the test.
func inNamespace(t *testing.T) {
	t.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "root"
	} else if _, err := exec.LookPath("nft"); err != nil {
		missing = "nft"
	}
	if missing != "" {
		if os.Getenv("REQUIRE_KERNEL") == "1" {
			t.Fatalf("needs %s", missing)
		}
		t.Skipf("needs %s", missing)
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestWatch traces packets while a foreign rule drops packets to one address. Packets to another
// address pass. After the trace, the kernel has no table of nftrace.
func TestWatch(t *testing.T) {
	inNamespace(t)
	foreign := "table ip calico {\n chain cali-from {\n  ip daddr 127.9.0.1 udp dport 80 drop\n }\n" +
		" chain output {\n  type filter hook output priority 0; policy accept;\n  jump cali-from\n }\n" +
		// The kernel traces a translated packet with another ID.
		" chain translate {\n  type nat hook output priority -100;\n  ip daddr 127.9.0.3 dnat to 127.9.0.1\n }\n}\n"
	nft(t, foreign, "-f", "-")
	filter := Filter{Prefixes: []netip.Prefix{netip.MustParsePrefix("127.9.0.0/16"), netip.MustParsePrefix("fd00::/64")},
		Exclude: []netip.Prefix{netip.MustParsePrefix("127.9.9.0/24")}, Message: "mess", MessagePort: 4804}
	ctx := t.Context()
	conns := map[string]net.Conn{}
	for _, to := range []string{"127.9.0.1:80", "127.9.0.2:80", "127.9.0.3:80", "127.9.9.1:80", "127.8.0.1:80", "127.9.0.4:4804", "127.9.0.5:4804"} {
		conn, err := net.Dial("udp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[to] = conn
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { // sockets stay in their namespace
		defer close(done)
		for {
			for to, conn := range conns {
				text := "other"
				if to == "127.9.0.4:4804" {
					text = "message of an agent"
				}
				_, _ = conn.Write([]byte(text))
			}
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	steps, lasted, err := Capture(ctx, filter, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	narrow := filter
	narrow.Include = []netip.Prefix{netip.MustParsePrefix("127.9.0.2/32"), netip.MustParsePrefix("127.8.0.1/32")}
	fewer, _, err := Capture(ctx, narrow, 3*time.Second)
	close(stop)
	<-done
	if err != nil {
		t.Fatal(err)
	}
	traced := 0
	for _, s := range fewer {
		if s.Flow == nil {
			continue
		}
		if traced++; s.Flow.To.Addr() != netip.MustParseAddr("127.9.0.2") {
			t.Errorf("traced %+v, which was not requested", s.Flow)
		}
	}
	if traced == 0 {
		t.Error("no selected packet was traced")
	}
	d := Diagnose(steps, lasted, nil)
	if d.Packets == 0 || d.Passed == 0 || len(d.Findings) != 1 {
		t.Fatalf("%+v of %d steps", d, len(steps))
	}
	f := d.Findings[0]
	if f.Kind != status.FindingForeign || !strings.HasSuffix(f.Location, " in chain cali-from of table ip calico") ||
		!strings.Contains(f.Text, "Calico") || !slices.ContainsFunc(f.Flows, starts("udp 127.0.0.1 -> 127.9.0.1:80")) ||
		!slices.ContainsFunc(f.Flows, starts("udp 127.0.0.1 -> 127.9.0.3:80, then udp 127.0.0.1 -> 127.9.0.1:80")) {
		t.Errorf("%+v", f)
	}
	hidden, other := []string{"127.8.0.1", "127.9.9.1", "127.9.0.4"}, 0
	for _, s := range steps {
		switch {
		case s.Flow == nil:
		case slices.Contains(hidden, s.Flow.To.Addr().String()):
			t.Errorf("traced %+v", s.Flow)
		case s.Flow.To == netip.MustParseAddrPort("127.9.0.5:4804"):
			other++
		}
	}
	if other == 0 {
		t.Error("no datagram to the port of messages was traced")
	}
	if left := nft(t, "", "list", "tables"); strings.TrimSpace(left) != "table ip calico" {
		t.Errorf("left: %s", left)
	}
}

func starts(text string) func(string) bool {
	return func(flow string) bool { return strings.HasPrefix(flow, text) }
}

func nft(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft %v: %v\n%s", args, err, out)
	}
	return string(out)
}
