package pathmtu

import (
	"context"
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

	"hawser.dev/hawser/internal/bell"
	"hawser.dev/hawser/nodeagent/transport"
)

// missing skips the test, or fails it where everything must be there.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("REQUIRE_KERNEL") == "1" {
		t.Fatal("needs " + what)
	}
	t.Skip("needs " + what)
}

// space is a network namespace of a test.
type space struct {
	t      *testing.T
	name   string
	handle netns.NsHandle
}

func newSpace(t *testing.T) *space {
	t.Helper()
	if os.Geteuid() != 0 {
		missing(t, "root")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, tool)
		}
	}
	raw := make([]byte, 4)
	_, _ = rand.Read(raw)
	s := &space{t: t, name: "hwm-" + hex.EncodeToString(raw)}
	s.run("", "ip", "netns", "add", s.name)
	t.Cleanup(func() { s.run("", "ip", "netns", "del", s.name) })
	handle, err := netns.GetFromName(s.name)
	if err != nil {
		t.Fatal(err)
	}
	s.handle = handle
	t.Cleanup(func() { handle.Close() })
	s.ip("link set lo up")
	return s
}

func (s *space) run(input, name string, args ...string) {
	s.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func (s *space) ip(commands ...string) {
	s.t.Helper()
	for _, c := range commands {
		s.run("", "ip", append([]string{"-n", s.name}, strings.Fields(c)...)...)
	}
}

func (s *space) nft(script string) {
	s.t.Helper()
	s.run(script, "ip", "netns", "exec", s.name, "nft", "-f", "-")
}

// find runs a finder in the namespace until the test ends. The signal comes
// with each change.
func (s *space) find(name string, own []netip.Addr, links []Link) (*Finder, <-chan struct{}) {
	s.t.Helper()
	changed := make(chan struct{}, 1)
	f := New(Config{Port: 4804, Log: slog.New(slog.DiscardHandler), Wake: bell.New(), OnChange: func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	f.Set(name, own, links)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := netns.Set(s.handle); err != nil {
			done <- err
			return
		}
		done <- transport.New(transport.Config{
			Port: 4804, Log: f.config.Log, Wake: f.config.Wake, Machines: []transport.Machine{f},
		}).Run(ctx)
	}()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
	return f, changed
}

// await waits until all paths of a finder have a state and value.
func await(t *testing.T, f *Finder, changed <-chan struct{}, state string, value int) {
	t.Helper()
	end := time.After(20 * time.Second)
	for {
		all := true
		for _, p := range f.Snapshot() {
			all = all && p.State == state && p.Value == value
		}
		if all {
			return
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("paths %+v, want %s %d; stats %+v", f.Snapshot(), state, value, f.Stats())
		}
	}
}

// TestPackets puts two finders on a line of which one direction drops large
// packets in silence for a while.
func TestPackets(t *testing.T) {
	t.Parallel()
	a, b := newSpace(t), newSpace(t)
	a.ip("link add hw-wg1 type veth peer name hw-wg1 netns " + b.name)
	addrs := [][]netip.Addr{
		{netip.MustParseAddr("241.0.0.1"), netip.MustParseAddr("fd00:41::1")},
		{netip.MustParseAddr("241.0.0.2"), netip.MustParseAddr("fd00:41::2")},
	}
	for i, s := range []*space{a, b} {
		s.ip("link set hw-wg1 mtu 1420 up", "addr add "+addrs[i][0].String()+"/24 dev hw-wg1",
			"addr add "+addrs[i][1].String()+"/64 dev hw-wg1 nodad")
	}
	paths := func(peer string, from, to []netip.Addr) (out []Link) {
		for i := range from {
			out = append(out, Link{Peer: peer, Source: from[i], Addr: to[i], MTU: 1420, Carries: true})
		}
		return out
	}
	// What a route says of the MTU must not hide what passes.
	a.ip("route add 241.0.0.2/32 dev hw-wg1 src 241.0.0.1 mtu 1300", "route add fd00:41::2/128 dev hw-wg1 src fd00:41::1 mtu 1300")
	there, changedThere := a.find("g1/a", addrs[0], paths("g2/a", addrs[0], addrs[1]))
	back, changedBack := b.find("g2/a", addrs[1], paths("g1/a", addrs[1], addrs[0]))
	await(t, there, changedThere, OK, 1420)
	await(t, back, changedBack, OK, 1420)
	b.nft("table inet t { chain in { type filter hook input priority 0; meta length > 1337 drop; }; }")
	await(t, there, changedThere, BlackHole, 1337)
	await(t, back, changedBack, OK, 1420)
	if s := there.Stats(); s.Failed > 0 || s.Malformed > 0 {
		t.Errorf("stats %+v", s)
	}
	b.nft("delete table inet t")
	end := time.Now()
	for _, p := range there.paths {
		there.mu.Lock()
		p.back = end // else the test waits for twenty seconds
		p.due = end
		there.queue.Set(p, end)
		there.mu.Unlock()
	}
	there.config.Wake.Ring()
	await(t, there, changedThere, OK, 1420)
}
