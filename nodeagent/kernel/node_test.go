package kernel

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
)

// nodeState returns the desired state of a gateway, without nftables and DNS.
func nodeState(t testing.TB) desired.State {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	wg := tunnelLink()
	private, _ := newKey(t)
	_, public := newKey(t)
	return desired.State{
		Sysctls:    []desired.Sysctl{{Name: "net/ipv4/ip_forward", Value: "1"}, {Name: "net/ipv4/conf/hw-vx0/rp_filter", Value: "2"}},
		Devices:    []desired.Device{nodeLink(), wg},
		Wireguards: []desired.Wireguard{{Device: wg.Name, PrivateKey: private, ListenPort: 51820}},
		Peers: []desired.Peer{{
			Device: wg.Name, PublicKey: public, Endpoint: netip.MustParseAddrPort("192.0.2.9:51820"), Keepalive: 25,
			AllowedIPs: []netip.Prefix{prefix("241.0.0.2/32"), prefix("242.2.0.0/24")},
		}},
		Addresses: []desired.Address{
			{Device: "hw-vx0", Prefix: prefix("169.254.73.53/32"), Scope: "link"}, {Device: wg.Name, Prefix: prefix("241.0.0.1/32"), Scope: "global"},
		},
		Neighbors: []desired.Neighbor{{Device: "hw-vx0", Addr: addr("192.0.2.2"), MAC: "02:00:00:00:00:02"}},
		Rules:     []desired.Rule{{Priority: 7300, Table: 7300}, {Priority: 7301, Table: 7301, IIF: wg.Name}},
		Routes: []desired.Route{
			{Table: 7300, Dst: prefix("242.2.0.0/24"), Type: "unicast", Device: wg.Name, MTU: 1380},
			{Table: 7300, Dst: prefix("242.1.0.0/24"), Type: "blackhole"},
			{Table: 7301, Dst: prefix("10.7.1.0/24"), Type: "unicast", Device: "hw-vx0", Via: addr("192.0.2.2")},
		},
	}
}

func nodeEngine(t testing.TB, ns *Namespace, found string) *converge.Engine[desired.State] {
	type d = desired.State
	return &converge.Engine[d]{
		Stages: []converge.Stage[d]{
			converge.NewStage(NewSysctls(ns, found), func(s d) []desired.Sysctl { return s.Sysctls }, nil),
			converge.NewStage(NewDevices(ns, launcher(t)), func(s d) []desired.Device { return s.Devices }, nil),
			converge.NewStage(NewWireguards(ns), func(s d) []desired.Wireguard { return s.Wireguards }, nil),
			converge.NewStage(NewPeers(ns), func(s d) []desired.Peer { return s.Peers }, nil),
			converge.NewStage(NewAddresses(ns), func(s d) []desired.Address { return s.Addresses }, nil),
			converge.NewStage(NewNeighbors(ns), func(s d) []desired.Neighbor { return s.Neighbors }, nil),
			converge.NewStage(NewRules(ns), func(s d) []desired.Rule { return s.Rules }, nil),
			converge.NewStage(NewRoutes(ns), func(s d) []desired.Route { return s.Routes }, nil),
		},
		Decommission: func(s d) bool { return len(s.Devices) == 0 },
	}
}

func changeCount(e *converge.Engine[desired.State], s desired.State) (n int) {
	for _, stage := range e.Stages {
		n += stage.DesiredCount(s)
	}
	return n
}

// TestNode creates the objects of a whole gateway in one round, has each repaired, and removes
// all.
func TestNode(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	found := filepath.Join(t.TempDir(), "sysctls.json")
	want := nodeState(t)
	wg := want.Devices[1].Name
	before := w.ip(t, "-o addr") + w.ip(t, "rule") + w.ip(t, "route show table all")
	e := nodeEngine(t, w.ns, found)
	t.Cleanup(func() { nodeEngine(t, w.ns, found).Once(context.Background(), desired.State{}, "") })

	trigger := make(chan struct{}, 1)
	reports := make(chan converge.Report, 1000)
	e.OnReport = func(r converge.Report) { reports <- r }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.ns.inside(func() error { return Monitor(ctx, trigger) }) }()
	source := func(context.Context) (desired.State, string, bool) { return want, "1", true }
	running := make(chan struct{})
	go func() { defer close(running); e.Run(ctx, source, trigger) }()
	first := <-reports
	if !first.Clean() || len(first.Changed) != changeCount(e, want) {
		t.Fatalf("first round: %d changes of %d, failed %v, blocked %v", len(first.Changed), changeCount(e, want), first.Failed, first.Blocked)
	}
	for name, tamper := range map[string][]string{
		"vxlan":   {"link del hw-vx0"},
		"tunnel":  {"link del " + wg},
		"down":    {"link set hw-vx0 down"},
		"route":   {"route del 242.2.0.0/24 table 7300"},
		"address": {"addr del 241.0.0.1/32 dev " + wg},
		"rule":    {"rule del pref 7300"},
	} {
		drainReports(reports)
		w.foreign(tamper...)(t)
		at := time.Now()
		awaitRepair(t, name, reports)
		if took := time.Since(at); took > time.Second {
			t.Errorf("%s: repaired after %v, want less than 1 s", name, took)
		}
	}
	// The next round repairs the settings under net/*/conf of a recreated device. The device's
	// events trigger it.
	drainReports(reports)
	cancel()
	<-running
	<-ended
	if plan, err := nodeEngine(t, w.open(t), found).Plan(t.Context(), want); err != nil || len(plan) > 0 {
		t.Errorf("plan of a new process: %v (%v)", plan, err)
	}
	report := nodeEngine(t, w.open(t), found).Once(t.Context(), desired.State{}, "2")
	if !report.Clean() {
		t.Fatalf("take down: %v", report.Failed)
	}
	if after := w.ip(t, "-o addr") + w.ip(t, "rule") + w.ip(t, "route show table all"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if v, err := NewSysctls(w.ns, found).read("net/ipv4/ip_forward"); v != "0" || err != nil {
		t.Errorf("ip_forward is %s in the end (%v), want 0", v, err)
	}
}

// drainReports discards reports until none arrives for 300 ms.
func drainReports(reports chan converge.Report) {
	for {
		select {
		case <-reports:
		case <-time.After(300 * time.Millisecond):
			return
		}
	}
}

// awaitRepair waits for a round that made changes and left no failures.
func awaitRepair(t *testing.T, name string, reports chan converge.Report) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case r := <-reports:
			if len(r.Changed) > 0 && r.Clean() {
				if len(r.Drift) == 0 {
					t.Errorf("%s: the repair is not counted as drift", name)
				}
				return
			}
		case <-deadline:
			t.Fatalf("%s: not repaired", name)
		}
	}
}

// TestSysctlNotSaved checks that if the previous value cannot be saved, the setting is written
// anyway and the error reported. The kind keeps the previous value until it can be saved.
func TestSysctlNotSaved(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	kind := NewSysctls(w.ns, "/proc/no-such-place/sysctls.json")
	want := desired.Sysctl{Name: "net/ipv4/ip_forward", Value: "1"}
	for range 2 {
		err := kind.Apply(t.Context(), creations(want))
		if !errors.As(err, new(converge.KeyError)) {
			t.Errorf("error %v, want the error of the key", err)
		}
		if v, _ := kind.read(want.Name); v != "1" {
			t.Errorf("value %s, want 1", v)
		}
		if have, err := kind.Observe(t.Context()); len(have) > 0 || err != nil {
			t.Errorf("observed %v (%v), want nothing until it is saved", have, err)
		}
	}
	saved := NewSysctls(w.ns, filepath.Join(t.TempDir(), "sysctls.json"))
	kind.directory, kind.saved = saved.directory, saved.saved
	if err := kind.Apply(t.Context(), creations(want)); err != nil {
		t.Fatal(err)
	}
	have, err := kind.Observe(t.Context())
	if err != nil || len(have) != 1 {
		t.Fatalf("observed %v (%v)", have, err)
	}
	if err := kind.restore(map[string]string{}, want.Name); err != nil {
		t.Errorf("restore of a setting that is not ours: %v", err)
	}
	found, err := kind.load()
	if err != nil || found[want.Name] != "0" {
		t.Errorf("saved %v (%v), want the first value found", found, err)
	}
}

func TestSysctlName(t *testing.T) {
	t.Parallel()
	kind := NewSysctls(&Namespace{}, "")
	for _, name := range []string{"../../etc/passwd", "/etc/passwd", "", "net/../../x"} {
		if file, err := kind.file(name); err == nil {
			t.Errorf("%q became %s", name, file)
		}
	}
	if _, err := kind.read("net/no/such"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want %v", err, fs.ErrNotExist)
	}
}

// TestSysctlsWithRoot checks that the kind reads and writes settings in the directory that a
// container has mounted elsewhere.
func TestSysctlsWithRoot(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	kind := NewSysctls(&Namespace{}, filepath.Join(t.TempDir(), "sysctls.json")).WithRoot(root)
	if err := os.WriteFile(filepath.Join(root, "ip_forward"), []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := kind.write("ip_forward", "1"); err != nil {
		t.Fatal(err)
	}
	if have, err := kind.read("ip_forward"); have != "1" || err != nil {
		t.Errorf("have %q: %v", have, err)
	}
}
