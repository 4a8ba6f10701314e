package ipsec

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/ipsec/vici"
	"hawser.dev/hawser/schema/fabric"
)

// end is one host of a pair: a network namespace with its own charon.
type end struct {
	space  string
	outer  netip.Addr // on the underlay
	inner  netip.Addr // inside ESP
	seed   fabric.Secret
	id     string
	charon *Charon
	kind   *Connections
}

// pair returns two hosts with an underlay between them, each with a running charon.
func pair(t *testing.T, six bool) (a, b *end) {
	t.Helper()
	needCharon(t)
	a, b = newEnd(t, "a"), newEnd(t, "b")
	a.outer, b.outer = netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2")
	if six {
		a.outer, b.outer = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	}
	a.inner, b.inner = netip.MustParseAddr("241.0.0.1"), netip.MustParseAddr("241.0.0.2")
	run(t, "ip", "-n", a.space, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b.space)
	for _, e := range []*end{a, b} {
		bits := map[bool]string{false: "/24", true: "/64"}[six]
		e.ip(t, "addr add "+e.outer.String()+bits+" dev eth0"+map[bool]string{true: " nodad"}[six])
		e.ip(t, "link set lo up")
		e.ip(t, "link set eth0 up")
		e.ip(t, "addr add "+e.inner.String()+"/32 dev lo")
		e.start(t)
	}
	return a, b
}

func needCharon(t *testing.T) {
	t.Helper()
	_, tun := os.Stat("/dev/net/tun")
	_, program := Program()
	for _, missing := range []struct {
		what string
		is   bool
	}{{"root", os.Geteuid() != 0}, {"tun", tun != nil}, {"charon", program != nil}} {
		if missing.is && os.Getenv("REQUIRE_KERNEL") == "1" {
			t.Fatal("needs " + missing.what)
		} else if missing.is {
			t.Skip("needs " + missing.what)
		}
	}
}

func newEnd(t *testing.T, id string) *end {
	t.Helper()
	raw := make([]byte, 4)
	e := &end{id: id}
	_, _ = rand.Read(raw)
	_, _ = rand.Read(e.seed[:])
	e.space = "hwi-" + hex.EncodeToString(raw)
	run(t, "ip", "netns", "add", e.space)
	t.Cleanup(func() { run(t, "ip", "netns", "del", e.space) })
	e.charon = &Charon{Dir: filepath.Join(t.TempDir(), "ipsec")}
	e.kind = NewConnections(e.charon)
	return e
}

func (e *end) start(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if err := e.charon.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			log, _ := os.ReadFile(e.charon.path("charon.log"))
			t.Logf("log of %s:\n%s", e.id, log)
		}
	})
	e.inside(t, func() error { return e.charon.Start(t.Context(), 1500, 14500) })
}

// inside runs f in the namespace; its processes stay there.
func (e *end) inside(t *testing.T, f func() error) {
	t.Helper()
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	away, err := netns.GetFromName(e.space)
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	if err := netns.Set(away); err != nil {
		t.Fatal(err)
	}
	failed := f()
	if err := netns.Set(home); err != nil {
		t.Fatal(err)
	}
	runtime.UnlockOSThread()
	if failed != nil {
		t.Fatal(failed)
	}
}

func (e *end) ip(t *testing.T, command string) string {
	t.Helper()
	return run(t, "ip", append([]string{"-n", e.space}, strings.Fields(command)...)...)
}

func (e *end) sh(command string) (string, error) {
	out, err := exec.Command("ip", "netns", "exec", e.space, "sh", "-c", command).CombinedOutput()
	return string(out), err
}

// to returns e's connection to another end.
func (e *end) to(o *end) desired.IPsec {
	return desired.IPsec{
		Name: desired.IPsecPrefix + o.id, Remote: netip.AddrPortFrom(o.outer, 14500), LocalPort: 14500,
		LocalID: e.id + ".test", RemoteID: o.id + ".test", PrivateKey: e.seed,
		PublicKey: base64.StdEncoding.EncodeToString(publicKey(o.seed)), LocalAddr: e.inner, RemoteAddr: o.inner,
		Initiator: e.id < o.id, Encapsulation: fabric.EncapsulationAuto,
		Proposals: []string{fabric.ProposalAESGCM, fabric.ProposalChaCha20}, Rekey: time.Hour,
	}
}

// converge makes the end's charon have exactly these connections.
func (e *end) converge(t *testing.T, want ...desired.IPsec) converge.Report {
	t.Helper()
	engine := &converge.Engine[[]desired.IPsec]{
		Stages: []converge.Stage[[]desired.IPsec]{
			converge.NewStage(e.kind, func(c []desired.IPsec) []desired.IPsec { return c }, nil),
		},
		Decommission: func([]desired.IPsec) bool { return true },
	}
	r := engine.Once(t.Context(), want, "")
	if !r.Clean() {
		t.Fatalf("converge %s: %v %v", e.id, r.Failed, r.Blocked)
	}
	return r
}

// call sends a command to the end's charon.
func (e *end) call(t *testing.T, command string, in vici.Section) vici.Section {
	t.Helper()
	c, err := e.charon.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out, err := c.Call(t.Context(), command, in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// eventually waits a minute for a condition: machines are slow.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout after a minute: %s", what)
		}
	}
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
