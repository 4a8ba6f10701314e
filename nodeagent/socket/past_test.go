package socket

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
)

// space is a network namespace of a test.
type space struct {
	t      *testing.T
	name   string
	handle netns.NsHandle
}

func newSpace(t *testing.T) *space {
	t.Helper()
	_, missing := exec.LookPath("ip")
	if os.Geteuid() != 0 || missing != nil {
		if os.Getenv("REQUIRE_KERNEL") == "1" {
			t.Fatal("needs root and ip")
		}
		t.Skip("needs root and ip")
	}
	raw := make([]byte, 4)
	_, _ = rand.Read(raw)
	s := &space{t: t, name: "hws-" + hex.EncodeToString(raw)}
	s.run("netns", "add", s.name)
	t.Cleanup(func() { s.run("netns", "del", s.name) })
	handle, err := netns.GetFromName(s.name)
	if err != nil {
		t.Fatal(err)
	}
	s.handle = handle
	t.Cleanup(func() { handle.Close() })
	return s
}

func (s *space) run(args ...string) {
	s.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		s.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (s *space) ip(commands ...string) {
	s.t.Helper()
	for _, c := range commands {
		s.run(append([]string{"-n", s.name}, strings.Fields(c)...)...)
	}
}

// inside does something on a thread in the namespace.
func (s *space) inside(do func()) {
	s.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := netns.Set(s.handle)
		if err == nil {
			do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		s.t.Fatal(err)
	}
}

// TestOverEachTunnel has two lines between two nodes, of which the routes use the first
// alone: what is sent over the second by name arrives there, and comes from the own port.
func TestOverEachTunnel(t *testing.T) {
	t.Parallel()
	a, b := newSpace(t), newSpace(t)
	addrs := [][2]string{{"241.0.0.1", "241.0.0.2"}, {"fd00:41::1", "fd00:41::2"}}
	for _, line := range []string{"hw-one", "hw-two"} {
		a.ip("link add " + line + " type veth peer name " + line + " netns " + b.name)
		for i, s := range []*space{a, b} {
			s.ip("link set "+line+" up", "addr add "+addrs[0][i]+"/32 dev "+line, "addr add "+addrs[1][i]+"/128 dev "+line+" nodad")
			metric := map[string]string{"hw-one": "100", "hw-two": "7301"}[line]
			s.ip("route add "+addrs[0][1-i]+"/32 dev "+line+" src "+addrs[0][i]+" metric "+metric,
				"route add "+addrs[1][1-i]+"/128 dev "+line+" src "+addrs[1][i]+" metric "+metric)
		}
	}
	const port = 4804
	arrived := make(chan Arrival, 10)
	config := SetConfig{Port: port, Log: slog.New(slog.DiscardHandler), Largest: 100, Read: func(in Arrival, _ []byte) []Datagram {
		arrived <- in
		return nil
	}}
	here, there := NewSet(config), NewSet(config)
	defer here.Close()
	defer there.Close()
	places := func(i int) map[Place]bool {
		return map[Place]bool{{Addr: netip.MustParseAddr(addrs[0][i])}: true, {Addr: netip.MustParseAddr(addrs[1][i])}: true}
	}
	index := map[string]int{}
	b.inside(func() {
		there.Update(time.Now(), func(bool) map[Place]bool { return places(1) })
		index["hw-one"], index["hw-two"] = Index("hw-one"), Index("hw-two")
	})
	index[""] = index["hw-one"]
	for _, family := range addrs {
		from, to := netip.MustParseAddr(family[0]), netip.MustParseAddr(family[1])
		for _, over := range []string{"", "hw-one", "hw-two"} {
			a.inside(func() {
				here.Update(time.Now(), func(bool) map[Place]bool { return places(0) })
				d := Datagram{From: Place{Addr: from}, To: netip.AddrPortFrom(to, port), Over: over, Raw: []byte("x")}
				if sent, failed := here.Send([]Datagram{d}); sent != 1 || failed != 0 {
					t.Errorf("from %s over %q: sent %d, failed %d", from, over, sent, failed)
				}
			})
			select {
			case in := <-arrived:
				if in.From != netip.AddrPortFrom(from, port) || in.At.Addr != to || in.Index != index[over] {
					t.Errorf("from %s over %q: arrived as %+v, want index %d", from, over, in, index[over])
				}
			case <-time.After(10 * time.Second):
				t.Errorf("from %s over %q: nothing arrives", from, over)
			}
		}
	}
}
