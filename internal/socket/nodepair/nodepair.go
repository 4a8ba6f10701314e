// Package nodepair creates two network namespaces for tests, which model two nodes of one cluster.
// They have an underlay with the nodes' addresses, and hw-vx0, a VXLAN device with permanent
// entries and without an address.
package nodepair

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleEnvVar is the environment variable with which a test binary acts as a node instead of
// running its tests.
const roleEnvVar = "HAWSER_TEST_NODE"

// Pair has two namespaces, 0 and 1, which are deleted at the end of the test.
type Pair struct {
	IPv4 [2]string // the nodes' own addresses
	IPv6 [2]string

	t    testing.TB
	name [2]string
	mac  [2]string
}

// Main runs the tests and returns their exit code. In a process of Start it runs node with the role
// instead. TestMain must call it.
func Main(m *testing.M, node func(role []string) error) int {
	role := os.Getenv(roleEnvVar)
	if role == "" {
		return m.Run()
	}
	if err := node(strings.Fields(role)); err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	return 0
}

// New creates a pair. Without network namespaces the test is skipped, or fails if REQUIRE_KERNEL=1.
func New(t testing.TB) *Pair {
	t.Helper()
	id := rand.N(1 << 24)
	p := &Pair{
		IPv4: [2]string{"192.0.2.1", "192.0.2.2"}, IPv6: [2]string{"2001:db8::1", "2001:db8::2"},
		t: t, name: [2]string{fmt.Sprintf("hwp%06x-a", id), fmt.Sprintf("hwp%06x-b", id)},
		mac: [2]string{"0a:00:00:00:00:01", "0a:00:00:00:00:02"},
	}
	t.Cleanup(func() {
		for _, name := range p.name {
			_ = exec.Command("ip", "netns", "del", name).Run()
		}
	})
	if out, err := exec.Command("ip", "netns", "add", p.name[0]).CombinedOutput(); err != nil {
		if os.Getenv("REQUIRE_KERNEL") == "1" {
			t.Fatalf("needs network namespaces: %v: %s", err, out)
		}
		t.Skip("needs network namespaces")
	}
	p.run("ip", "netns add "+p.name[1])
	p.run("ip", fmt.Sprintf("-n %s link add eth0 type veth peer name eth0 netns %s", p.name[0], p.name[1]))
	for i := range p.name {
		p.IP(i, "link set lo up")
		p.IP(i, "addr add "+p.IPv4[i]+"/24 dev eth0")
		p.IP(i, "addr add "+p.IPv6[i]+"/64 dev eth0 nodad")
		p.IP(i, "link set eth0 up")
		p.VXLAN(i)
	}
	return p
}

// IP runs ip(8) in a namespace.
func (p *Pair) IP(i int, args string) {
	p.t.Helper()
	p.run("ip", "-n "+p.name[i]+" "+args)
}

// NFT runs nft(8) in a namespace and returns its output.
func (p *Pair) NFT(i int, args ...string) string {
	p.t.Helper()
	return p.output("ip", slices.Concat([]string{"netns", "exec", p.name[i], "nft"}, args)...)
}

func (p *Pair) run(command, args string) {
	p.t.Helper()
	p.output(command, strings.Fields(args)...)
}

func (p *Pair) output(command string, args ...string) string {
	p.t.Helper()
	out, err := exec.Command(command, args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s %s: %v: %s", command, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// VXLAN creates hw-vx0 in a namespace, with permanent entries for the other node.
func (p *Pair) VXLAN(i int) {
	p.t.Helper()
	other := 1 - i
	p.IP(i, fmt.Sprintf("link add hw-vx0 address %s type vxlan id 73 local %s dstport 4803 nolearning", p.mac[i], p.IPv4[i]))
	p.IP(i, "link set hw-vx0 up")
	for _, addr := range []string{p.IPv4[other], p.IPv6[other]} {
		p.IP(i, fmt.Sprintf("neigh replace %s lladdr %s nud permanent dev hw-vx0", addr, p.mac[other]))
	}
	p.run("bridge", fmt.Sprintf("-n %s fdb append %s dev hw-vx0 dst %s self permanent", p.name[i], p.mac[other], p.IPv4[other]))
}

// RouteIPv6 makes IPv6 addresses on hw-vx0 reachable for sockets that are bound to it. For such a
// socket, the kernel treats an IPv4 address without a route as on-link, but refuses an IPv6
// address. The rule matches the output device, so it affects no other packet.
func (p *Pair) RouteIPv6(i int) {
	p.t.Helper()
	p.IP(i, "-6 rule add oif hw-vx0 table 7302 priority 7302")
	p.IP(i, "-6 route add default dev hw-vx0 table 7302")
}

// Start runs this test binary as a node in a namespace (see Main) and returns the lines of its
// output. At the end of the test the process gets SIGTERM and must exit without an error.
func (p *Pair) Start(i int, role string) <-chan string {
	p.t.Helper()
	cmd := exec.Command("ip", "netns", "exec", p.name[i], os.Args[0])
	cmd.Env = append(os.Environ(), roleEnvVar+"="+role)
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	lines, done := make(chan string, 10000), make(chan struct{})
	go func() {
		defer close(done)
		scan(out, lines)
	}()
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-done
		if err := cmd.Wait(); err != nil {
			p.t.Errorf("node %s: %v", role, err)
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

// Await waits until a node prints the line want.
func Await(t testing.TB, lines <-chan string, want string) {
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
			t.Fatalf("the node printed %q last, want %q", last, want)
		}
	}
}
