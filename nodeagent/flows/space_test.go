package flows

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
)

// space is a network namespace of a test.
type space struct {
	t      testing.TB
	name   string
	handle netns.NsHandle
}

// missing skips the test, or fails it where everything must be there.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("REQUIRE_KERNEL") == "1" {
		t.Fatal("needs " + what)
	}
	t.Skip("needs " + what)
}

func newSpace(t testing.TB) *space {
	t.Helper()
	if os.Geteuid() != 0 {
		missing(t, "root")
	}
	for _, tool := range []string{"ip", "nft", "bridge"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, tool)
		}
	}
	raw := make([]byte, 4)
	_, _ = rand.Read(raw)
	s := &space{t: t, name: "hwf-" + hex.EncodeToString(raw)}
	run(t, "", "ip", "netns", "add", s.name)
	t.Cleanup(func() { run(t, "", "ip", "netns", "del", s.name) })
	handle, err := netns.GetFromName(s.name)
	if err != nil {
		t.Fatal(err)
	}
	s.handle = handle
	t.Cleanup(func() { handle.Close() })
	s.ip("link set lo up")
	for _, name := range []string{"ipv4/ip_forward=1", "ipv6/conf/all/forwarding=1", "ipv4/conf/all/rp_filter=0"} {
		key, value, _ := strings.Cut(name, "=")
		s.sysctl(key, value)
	}
	return s
}

func run(t testing.TB, input, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// ip runs ip(8) commands.
func (s *space) ip(commands ...string) {
	s.t.Helper()
	for _, c := range commands {
		run(s.t, "", "ip", append([]string{"-n", s.name}, strings.Fields(c)...)...)
	}
}

func (s *space) nft(script string) {
	s.t.Helper()
	run(s.t, script, "ip", "netns", "exec", s.name, "nft", "-f", "-")
}

func (s *space) sysctl(name, value string) {
	s.t.Helper()
	s.inside(func() {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644); err != nil {
			s.t.Error(err)
		}
	})
}

// inside runs f on a thread that is in the namespace. Sockets stay there.
func (s *space) inside(f func()) {
	s.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		s.t.Fatal(err)
	}
	defer home.Close()
	if err := netns.Set(s.handle); err != nil {
		s.t.Fatal(err)
	}
	defer func() {
		if err := netns.Set(home); err != nil {
			panic("go back to the first network namespace: " + err.Error())
		}
	}()
	f()
}

// tunnel lays a veth between two namespaces.
func tunnel(a *space, nameA string, b *space, nameB string) {
	a.t.Helper()
	a.ip("link add " + nameA + " type veth peer name " + nameB + " netns " + b.name)
	a.ip("link set " + nameA + " up")
	b.ip("link set " + nameB + " up")
}

// run starts a keeper in the namespace. It ends with the test.
func (s *space) run(ctx context.Context, k *Keeper) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go s.inside(func() { done <- k.Run(ctx) })
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}
