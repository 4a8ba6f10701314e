package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// nftNS is a network namespace of a test.
type nftNS struct {
	t       testing.TB
	fd      netns.NsHandle
	netlink *netlink.Handle
}

// nftRequire skips (or, with REQUIRE_KERNEL=1, fails) a test that this machine
// cannot run.
func nftRequire(t testing.TB, requirement string, ok bool) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("REQUIRE_KERNEL") == "1" {
		t.Fatalf("needs %s", requirement)
	}
	t.Skip("needs " + requirement)
}

// nftNewNS makes a namespace without a name. It disappears with its last file descriptor, even
// if the test crashes.
func nftNewNS(t testing.TB) *nftNS {
	t.Helper()
	nftRequire(t, "root", os.Geteuid() == 0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	handle, err := netns.New()
	if err != nil {
		nftRequire(t, fmt.Sprintf("network namespaces (%v)", err), false)
	}
	if err := netns.Set(before); err != nil {
		panic(fmt.Sprintf("restore the thread's network namespace: %v", err))
	}
	t.Cleanup(func() { handle.Close() })
	links, err := netlink.NewHandleAt(handle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(links.Close)
	ns := &nftNS{t: t, fd: handle, netlink: links}
	_, err = NewTables(ns.opts()).Version(t.Context())
	nftRequire(t, fmt.Sprintf("nftables (%v)", err), err == nil)
	return ns
}

func (n *nftNS) opts() NFTOptions { return NFTOptions{NetNS: int(n.fd)} }

// inside runs f on a thread that is in the namespace.
func (n *nftNS) inside(f func()) {
	n.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := netns.Get()
	if err != nil {
		n.t.Fatal(err)
	}
	defer before.Close()
	if err := netns.Set(n.fd); err != nil {
		n.t.Fatal(err)
	}
	defer func() {
		if err := netns.Set(before); err != nil {
			panic(fmt.Sprintf("restore the thread's network namespace: %v", err))
		}
	}()
	f()
}

// nft runs nft(8) in the namespace with a script and returns its output.
func (n *nftNS) nft(script string) string {
	n.t.Helper()
	path, err := exec.LookPath("nft")
	nftRequire(n.t, "nft(8)", err == nil)
	var out []byte
	n.inside(func() {
		cmd := exec.Command(path, "-f", "-")
		cmd.Stdin = strings.NewReader(script)
		out, err = cmd.CombinedOutput()
	})
	if err != nil {
		n.t.Fatalf("nft: %v\n%s", err, out)
	}
	return string(out)
}
