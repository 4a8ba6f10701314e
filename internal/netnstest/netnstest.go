// Package netnstest creates network namespaces for tests.
package netnstest

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
)

// Space is a network namespace, which is deleted at the end of the test. Its loopback interface is
// up.
type Space struct {
	Name string

	t      testing.TB
	handle netns.NsHandle
}

// New creates a namespace. Without root, ip(8) or one of the tools, the test is skipped, or fails
// if REQUIRE_KERNEL=1.
func New(t testing.TB, tools ...string) *Space {
	t.Helper()
	if os.Geteuid() != 0 {
		skipMissing(t, "root")
	}
	for _, tool := range append(tools, "ip") {
		if _, err := exec.LookPath(tool); err != nil {
			skipMissing(t, tool)
		}
	}
	raw := make([]byte, 4)
	_, _ = rand.Read(raw)
	s := &Space{t: t, Name: "hwt-" + hex.EncodeToString(raw)}
	run(t, "", "ip", "netns", "add", s.Name)
	t.Cleanup(func() { run(t, "", "ip", "netns", "del", s.Name) })
	var err error
	if s.handle, err = netns.GetFromName(s.Name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.handle.Close() })
	s.IP("link set lo up")
	return s
}

func skipMissing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("REQUIRE_KERNEL") == "1" {
		t.Fatal("needs " + what)
	}
	t.Skip("needs " + what)
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

// IP runs ip(8) commands in the namespace.
func (s *Space) IP(commands ...string) {
	s.t.Helper()
	for _, c := range commands {
		run(s.t, "", "ip", append([]string{"-n", s.Name}, strings.Fields(c)...)...)
	}
}

// NFT loads rules in the namespace.
func (s *Space) NFT(script string) {
	s.t.Helper()
	s.Run(script, "nft", "-f", "-")
}

// Run runs a program in the namespace and returns its output.
func (s *Space) Run(input, program string, args ...string) string {
	s.t.Helper()
	return run(s.t, input, "ip", append([]string{"netns", "exec", s.Name, program}, args...)...)
}

// Inside runs f on a thread in the namespace. Sockets that f opens remain in the namespace.
func (s *Space) Inside(f func()) {
	s.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	original, err := netns.Get()
	if err != nil {
		s.t.Fatal(err)
	}
	defer original.Close()
	if err := netns.Set(s.handle); err != nil {
		s.t.Fatal(err)
	}
	defer func() {
		if err := netns.Set(original); err != nil {
			panic("go back to the first network namespace: " + err.Error())
		}
	}()
	f()
}
