package kernel

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/userspacewg"
)

// TestMain runs the agent's main for `wireguard NAME`, because the agent starts tunnel
// processes from its own executable.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "wireguard" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := userspacewg.Serve(ctx, os.Args[2], userspacewg.DefaultMTU, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// testNode is a network namespace of a test.
type testNode struct {
	name string
	ns   *Namespace
}

func newTestNode(t testing.TB) *testNode {
	t.Helper()
	if os.Geteuid() != 0 {
		skipOrFail(t, "root")
	}
	w := &testNode{name: "hwk-" + randomSuffix()}
	run(t, "ip", "netns", "add", w.name)
	t.Cleanup(func() { run(t, "ip", "netns", "del", w.name) })
	w.ns = w.open(t)
	w.ip(t, "link set lo up")
	return w
}

func (w *testNode) open(t testing.TB) *Namespace {
	t.Helper()
	ns, err := Open("/run/netns/" + w.name)
	if err != nil {
		t.Fatal(err)
	}
	// With the race detector and other tests running, a process is slow.
	ns.wg.TimeoutFactor = 60
	t.Cleanup(func() { ns.Close() })
	return ns
}

// ip runs one ip(8) command in the namespace.
func (w *testNode) ip(t testing.TB, command string) string {
	t.Helper()
	return run(t, "ip", append([]string{"-n", w.name}, strings.Fields(command)...)...)
}

func (w *testNode) bridge(t testing.TB, command string) string {
	t.Helper()
	return run(t, "bridge", append([]string{"-n", w.name}, strings.Fields(command)...)...)
}

// foreign returns a function that runs ip(8) commands, like another program.
func (w *testNode) foreign(commands ...string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		for _, c := range commands {
			w.ip(t, c)
		}
	}
}

// expectIP returns a function that reports whether ip(8) still prints a text.
func (w *testNode) expectIP(command, text string) func() error {
	return w.expectOutput("ip", command, text)
}

// expectBridge is expectIP for bridge(8).
func (w *testNode) expectBridge(command, text string) func() error {
	return w.expectOutput("bridge", command, text)
}

func (w *testNode) expectOutput(program, command, text string) func() error {
	return func() error {
		out, err := exec.Command(program, append([]string{"-n", w.name}, strings.Fields(command)...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), text) {
			return fmt.Errorf("%s %s: %q is missing (%v) in:\n%s", program, command, text, err, out)
		}
		return nil
	}
}

func allChecks(checks ...func() error) func() error {
	return func() error {
		for _, check := range checks {
			if err := check(); err != nil {
				return err
			}
		}
		return nil
	}
}

// createDevices creates devices of Hawser. It removes them before the namespace: a tunnel process
// would keep the namespace alive.
func (w *testNode) createDevices(t testing.TB, links ...desired.Device) {
	t.Helper()
	kind := NewDevices(w.ns, launcher(t))
	e := converge.Engine[[]desired.Device]{
		Stages: []converge.Stage[[]desired.Device]{
			converge.NewStage(kind, func(l []desired.Device) []desired.Device { return l }, nil),
		},
		Decommission: func([]desired.Device) bool { return true },
	}
	t.Cleanup(func() {
		if r := e.Once(context.Background(), nil, ""); !r.Clean() {
			t.Errorf("remove links: %v", r.Failed)
		}
	})
	if r := e.Once(t.Context(), links, ""); !r.Clean() {
		t.Fatalf("make links: %v %v", r.Failed, r.Blocked)
	}
}

func launcher(t testing.TB) userspacewg.Launcher {
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		skipOrFail(t, "tun")
	}
	return userspacewg.Launcher{LogDir: t.TempDir()}
}

func nodeLink() desired.Device {
	return desired.Device{
		Name: "hw-vx0", Type: desired.DeviceVXLAN, MTU: 1450, Up: true, MAC: "02:11:22:33:44:55", VNI: 73, Port: 4803,
		Local: netip.MustParseAddr("192.0.2.1"),
	}
}

// tunnelLink returns a device with a unique name: the sockets of userspace devices are in one
// directory for all namespaces.
func tunnelLink() desired.Device {
	return desired.Device{Name: "hw-wg" + randomSuffix(), Type: desired.DeviceWireguard, MTU: 1380, Up: true}
}

func randomSuffix() string {
	raw := make([]byte, 4)
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// skipOrFail skips the test, or fails it with REQUIRE_KERNEL=1.
func skipOrFail(t testing.TB, requirement string) {
	t.Helper()
	if os.Getenv("REQUIRE_KERNEL") == "1" {
		t.Fatal("needs " + requirement)
	}
	t.Skip("needs " + requirement)
}
