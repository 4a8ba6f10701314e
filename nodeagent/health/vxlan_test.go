package health

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleVariable makes this binary one node of TestOverVXLAN instead of a test.
const roleVariable = "HAWSER_TEST_NODE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := beNode(role); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beNode runs a prober in the namespace that the process was started in, and
// prints what it sees whenever that changed. The role is gateway or node, then
// the own and the other node's address.
func beNode(role string) error {
	kind, addresses, _ := strings.Cut(role, " ")
	own, other, _ := strings.Cut(addresses, " ")
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	config := Config{
		Cluster: "g1", Port: 4804, Log: slog.New(slog.DiscardHandler), Settings: Settings{Interval: 50 * time.Millisecond, Misses: 3},
		OnChange: func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	}
	here := netip.MustParseAddr(own)
	if kind == "gateway" {
		return beGateway(ctx, config, here)
	}
	p := New(config)
	p.SetTargets([]Target{{Peer: Peer{"g1", "gw"}, Source: here, Addr: netip.MustParseAddr(other), Device: "hw-vx0"}})
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	for {
		select {
		case <-ctx.Done():
			return <-done
		case <-changed:
			s := p.Snapshot()
			fmt.Println(s.Links[0].State, "b1", s.Alive("gw", Peer{"g2", "b1"}), "c1", s.Alive("gw", Peer{"g3", "c1"}))
		}
	}
}

// beGateway answers on hw-vx0, reaches g2/b1 (which runs here too) and not g3/c1.
func beGateway(ctx context.Context, config Config, here netip.Addr) error {
	far := config
	far.Cluster, far.Gateway = "g2", "b1"
	b := New(far)
	b.SetListen([]Listen{{Addr: loopback(2)}})
	config.Gateway = "gw"
	p := New(config)
	p.SetListen([]Listen{{Addr: here, Device: "hw-vx0"}})
	p.SetTargets([]Target{
		{Peer: Peer{"g2", "b1"}, Source: loopback(1), Addr: loopback(2)},
		{Peer: Peer{"g3", "c1"}, Source: loopback(1), Addr: loopback(3)},
	})
	done := make(chan error, 2)
	go func() { done <- b.Run(ctx) }()
	go func() { done <- p.Run(ctx) }()
	<-done
	return <-done
}

// pair is two namespaces that are nodes of one cluster: a veth underlay with the
// nodes' addresses, and hw-vx0 without any, as project lays it out.
type pair struct {
	t    *testing.T
	name [2]string
	mac  [2]string
	v4   [2]string
	v6   [2]string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	id := rand.N(1 << 24)
	p := &pair{
		t: t, name: [2]string{fmt.Sprintf("hwp%06x-a", id), fmt.Sprintf("hwp%06x-b", id)},
		mac: [2]string{"0a:00:00:00:00:01", "0a:00:00:00:00:02"},
		v4:  [2]string{"192.0.2.1", "192.0.2.2"}, v6: [2]string{"2001:db8::1", "2001:db8::2"},
	}
	if out, err := exec.Command("ip", "netns", "add", p.name[0]).CombinedOutput(); err != nil {
		missing(t, "network namespaces", out)
	}
	t.Cleanup(func() {
		for _, name := range p.name {
			_ = exec.Command("ip", "netns", "del", name).Run()
		}
	})
	p.ip("netns add " + p.name[1])
	p.ip(fmt.Sprintf("-n %s link add eth0 type veth peer name eth0 netns %s", p.name[0], p.name[1]))
	for i, ns := range p.name {
		p.ip("-n " + ns + " link set lo up")
		p.ip("-n " + ns + " addr add " + p.v4[i] + "/24 dev eth0")
		p.ip("-n " + ns + " addr add " + p.v6[i] + "/64 dev eth0 nodad")
		p.ip("-n " + ns + " link set eth0 up")
		p.vxlan(i)
	}
	return p
}

// missing skips, or fails where the kernel is required to have everything.
func missing(t *testing.T, what string, why []byte) {
	t.Helper()
	if os.Getenv("REQUIRE_KERNEL") == "1" {
		t.Fatalf("needs %s: %s", what, why)
	}
	t.Skipf("needs %s", what)
}

func (p *pair) ip(args string) {
	p.t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		p.t.Fatalf("ip %s: %s", args, out)
	}
}

// vxlan makes hw-vx0 on one side, with the permanent entries for the other.
func (p *pair) vxlan(i int) {
	p.t.Helper()
	ns, other := p.name[i], 1-i
	p.ip(fmt.Sprintf("-n %s link add hw-vx0 address %s type vxlan id 73 local %s dstport 4803 nolearning", ns, p.mac[i], p.v4[i]))
	p.ip("-n " + ns + " link set hw-vx0 up")
	for _, addr := range []string{p.v4[other], p.v6[other]} {
		p.ip(fmt.Sprintf("-n %s neigh replace %s lladdr %s nud permanent dev hw-vx0", ns, addr, p.mac[other]))
	}
	cmd := fmt.Sprintf("-n %s fdb append %s dev hw-vx0 dst %s self permanent", ns, p.mac[other], p.v4[other])
	if out, err := exec.Command("bridge", strings.Fields(cmd)...).CombinedOutput(); err != nil {
		p.t.Fatalf("bridge %s: %s", cmd, out)
	}
	// Without a route over hw-vx0 the kernel takes an IPv4 address as on-link for a
	// socket bound to the device, but refuses an IPv6 one.
	p.ip("-n " + ns + " -6 rule add oif hw-vx0 table 7302 priority 7302")
	p.ip("-n " + ns + " -6 route replace default dev hw-vx0 table 7302")
}

// node starts this binary as a node in a namespace and gives its lines.
func (p *pair) node(i int, role string) <-chan string {
	p.t.Helper()
	cmd := exec.Command("ip", "netns", "exec", p.name[i], os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	lines := make(chan string, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		scan(out, lines)
	}()
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-done
		if err := cmd.Wait(); err != nil {
			p.t.Errorf("%s: %v", role, err)
		}
	})
	return lines
}

func scan(from io.Reader, to chan<- string) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		to <- lines.Text()
	}
}

func awaitLine(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	last := "nothing"
	for {
		select {
		case last = <-lines:
			if last == want {
				return
			}
		case <-deadline:
			t.Fatalf("the node saw %q last, want %q", last, want)
		}
	}
}

func TestOverVXLAN(t *testing.T) {
	t.Parallel()
	for _, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			addr := p.v4
			if family == "IPv6" {
				addr = p.v6
			}
			p.node(0, "gateway "+addr[0]+" "+addr[1])
			lines := p.node(1, "node "+addr[1]+" "+addr[0])
			awaitLine(t, lines, "connected b1 true c1 false")
			p.ip("-n " + p.name[1] + " -6 rule del priority 7302")
			p.ip("-n " + p.name[1] + " link del hw-vx0")
			awaitLine(t, lines, "error b1 false c1 false")
			p.vxlan(1)
			awaitLine(t, lines, "connected b1 true c1 false")
		})
	}
}
