package kernel

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/converge/convergetest"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/schema/fabric"
)

func newKey(t testing.TB) (private fabric.Secret, public string) {
	t.Helper()
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return fabric.Secret(key), key.PublicKey().String()
}

// wg runs one wg(8) command in the namespace.
func (w *testNode) wg(command string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		run(t, "ip", append([]string{"netns", "exec", w.name, "wg"}, strings.Fields(command)...)...)
	}
}

func needWg(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("wg"); err != nil {
		skipOrFail(t, "wg")
	}
}

func TestWireguardLaws(t *testing.T) {
	t.Parallel()
	needWg(t)
	w := newTestNode(t)
	one, two := tunnelLink(), tunnelLink()
	w.createDevices(t, one, two)
	first, _ := newKey(t)
	second, _ := newKey(t)
	other, _ := newKey(t)
	otherFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(otherFile, []byte(base64.StdEncoding.EncodeToString(other[:])), 0o600); err != nil {
		t.Fatal(err)
	}
	convergetest.Laws(t, func(t *testing.T) converge.Kind[desired.Wireguard] { return NewWireguards(w.open(t)) },
		convergetest.Samples[desired.Wireguard]{
			Want: []desired.Wireguard{
				{Device: one.Name, PrivateKey: first, ListenPort: 51820}, {Device: two.Name, PrivateKey: second, ListenPort: 51821},
			},
			Vary: func(d desired.Wireguard) []desired.Wireguard {
				key, port := d, d
				key.PrivateKey, port.ListenPort = other, 51900+d.ListenPort%10
				return []desired.Wireguard{key, port}
			},
			Tamper: map[string]func(*testing.T){
				"port": w.wg("set " + one.Name + " listen-port 4711"),
				"key":  w.wg("set " + one.Name + " private-key " + otherFile),
			},
		})
}

// TestPortsExchanged checks that devices exchange ports in one pass, in pairs and in a ring of
// three.
func TestPortsExchanged(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	var links []desired.Device
	for range 3 {
		links = append(links, tunnelLink())
	}
	w.createDevices(t, links...)
	private, _ := newKey(t)
	kind := NewWireguards(w.ns)
	converged := func(ports ...int) {
		t.Helper()
		var want []desired.Wireguard
		for i, port := range ports {
			want = append(want, desired.Wireguard{Device: links[i].Name, PrivateKey: private, ListenPort: port})
		}
		for pass := range 2 {
			have, err := kind.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			changes, err := diff.Compute(want, have)
			if err != nil || pass > 0 && len(changes) > 0 {
				t.Fatalf("ports %v: left to do: %v (%v)", ports, changes, err)
			}
			if err := kind.Apply(t.Context(), changes); err != nil {
				t.Fatalf("ports %v: %v", ports, err)
			}
		}
	}
	converged(51820, 51821, 51822)
	converged(51821, 51820, 51822)
	converged(51820, 51822, 51821)
	converged(51822, 51821, 51900)
}

func TestPeerLaws(t *testing.T) {
	t.Parallel()
	needWg(t)
	w := newTestNode(t)
	link := tunnelLink()
	w.createDevices(t, link)
	private, _ := newKey(t)
	if err := w.ns.configure(t.Context(), link.Name, wgtypes.Config{PrivateKey: (*wgtypes.Key)(&private)}); err != nil {
		t.Fatal(err)
	}
	psk, _ := newKey(t)
	_, a := newKey(t)
	_, b := newKey(t)
	_, c := newKey(t)
	_, stranger := newKey(t)
	prefixes := func(texts ...string) (out []netip.Prefix) {
		for _, p := range texts {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	peer := func(rest string) func(*testing.T) { return w.wg("set " + link.Name + " peer " + rest) }
	convergetest.Laws(t, func(t *testing.T) converge.Kind[desired.Peer] { return NewPeers(w.open(t)) },
		convergetest.Samples[desired.Peer]{
			Want: []desired.Peer{
				{
					Device: link.Name, PublicKey: a, PSK: psk, Endpoint: netip.MustParseAddrPort("192.0.2.7:51820"),
					AllowedIPs: prefixes("10.0.0.0/8", "242.1.0.0/24", "fd00:1::/48"), Keepalive: 25,
				},
				{Device: link.Name, PublicKey: b, PSK: psk, Endpoint: netip.MustParseAddrPort("[2001:db8::7]:51820"), Keepalive: 5},
				{Device: link.Name, PublicKey: c, AllowedIPs: prefixes("242.3.0.0/24", "242.2.0.0/24")},
			},
			Vary: func(p desired.Peer) []desired.Peer {
				secret, ips, alive := p, p, p
				secret.PSK, ips.AllowedIPs, alive.Keepalive = fabric.Secret{1, 2}, prefixes("242.9.0.0/24"), 7
				out := []desired.Peer{secret, ips, alive}
				if p.Endpoint.IsValid() {
					there := p
					there.Endpoint = netip.AddrPortFrom(p.Endpoint.Addr(), 4711)
					out = append(out, there)
				}
				return out
			},
			Tamper: map[string]func(*testing.T){
				"removed":          peer(a + " remove"),
				"stranger":         peer(stranger + " allowed-ips 10.99.0.0/16"),
				"stolen prefix":    peer(b + " allowed-ips 242.1.0.0/24"),
				"other prefix":     peer(a + " allowed-ips 10.200.0.0/16"),
				"endpoint":         peer(a + " endpoint 192.0.2.99:9"),
				"keepalive":        peer(a + " persistent-keepalive off"),
				"pre-shared key":   peer(a + " preshared-key /dev/null"),
				"changed stranger": peer(stranger + " endpoint 192.0.2.1:1"),
			},
		})
}

func TestPeerWithoutEndpointAdoptsWhatIsLearned(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	link := tunnelLink()
	w.createDevices(t, link)
	_, public := newKey(t)
	want := desired.Peer{Device: link.Name, PublicKey: public, Endpoint: netip.MustParseAddrPort("192.0.2.7:9")}
	e := peerEngine(w)
	e.Once(t.Context(), []desired.Peer{want}, "")
	want.Endpoint = netip.AddrPort{}
	if plan, err := e.Plan(t.Context(), []desired.Peer{want}); err != nil || len(plan) > 0 {
		t.Errorf("plan %v, error %v, want none", plan, err)
	}
}

func peerEngine(w *testNode) *converge.Engine[[]desired.Peer] {
	return &converge.Engine[[]desired.Peer]{Stages: []converge.Stage[[]desired.Peer]{
		converge.NewStage(NewPeers(w.ns), func(p []desired.Peer) []desired.Peer { return p }, nil),
	}}
}

// TestRoaming uses two gateways, one of which sends from another address than configured. The
// learned endpoint stays while the gateway responds.
func TestRoaming(t *testing.T) {
	t.Parallel()
	left, right := newTestNode(t), newTestNode(t)
	left.ip(t, "link add u0 type veth peer name u0 netns "+right.name)
	left.foreign("link set u0 up", "addr add 192.0.2.1/24 dev u0")(t)
	right.foreign("link set u0 up", "addr add 192.0.2.2/24 dev u0", "addr add 192.0.2.3/24 dev u0")(t)
	leftKey, leftPublic := newKey(t)
	rightKey, rightPublic := newKey(t)
	peer := func(public, endpoint, allowed string) desired.Peer {
		return desired.Peer{
			PublicKey: public, Endpoint: netip.MustParseAddrPort(endpoint), Keepalive: 1,
			AllowedIPs: []netip.Prefix{netip.MustParsePrefix(allowed)},
		}
	}
	// The left gateway has a wrong endpoint for the right one, which starts the handshake.
	e, want := gatewayOf(t, left, leftKey, peer(rightPublic, "192.0.2.77:51820", "241.0.0.2/32"), "241.0.0.1")
	gatewayOf(t, right, rightKey, peer(leftPublic, "192.0.2.1:51820", "241.0.0.1/32"), "241.0.0.2")
	learned := func() (endpoint string, answers bool) {
		kind := NewPeers(left.ns)
		have, err := kind.Observe(t.Context())
		if err != nil || len(have) != 1 {
			t.Fatal(have, err)
		}
		return have[0].Endpoint.String(), kind.answering[have[0].Key()]
	}
	await(t, "a handshake", func() bool { _, answers := learned(); return answers })
	if endpoint, _ := learned(); endpoint != "192.0.2.2:51820" {
		t.Errorf("learned endpoint %s, want 192.0.2.2:51820", endpoint)
	}
	if r := e.Once(t.Context(), []desired.Peer{want}, ""); len(r.Changed) > 0 {
		t.Errorf("the learned endpoint was overwritten: %v", r.Changed)
	}
	// Another field changes: the endpoint is still the learned one.
	want.Keepalive = 2
	r := e.Once(t.Context(), []desired.Peer{want}, "")
	if endpoint, _ := learned(); len(r.Changed) != 1 || endpoint != "192.0.2.2:51820" {
		t.Errorf("changed %v, endpoint %s", r.Changed, endpoint)
	}
}

// gatewayOf adds a tunnel with an inner address and one peer to a node, at UDP port 51820.
func gatewayOf(t *testing.T, w *testNode, key fabric.Secret, p desired.Peer, address string) (*converge.Engine[[]desired.Peer], desired.Peer) {
	t.Helper()
	link := tunnelLink()
	w.createDevices(t, link)
	port := 51820
	if err := w.ns.configure(t.Context(), link.Name, wgtypes.Config{PrivateKey: (*wgtypes.Key)(&key), ListenPort: &port}); err != nil {
		t.Fatal(err)
	}
	w.foreign("addr add "+address+"/32 dev "+link.Name, "route add 241.0.0.0/24 dev "+link.Name)(t)
	p.Device = link.Name
	e := peerEngine(w)
	if r := e.Once(t.Context(), []desired.Peer{p}, ""); !r.Clean() {
		t.Fatal(r.Failed)
	}
	return e, p
}

// await waits for a condition, for at most 10 s.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("timeout waiting for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestManyPeers writes and reads 1 000 peers.
func TestManyPeers(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	link := tunnelLink()
	w.createDevices(t, link)
	want := manyPeers(t, link.Name, 1000)
	e := peerEngine(w)
	if r := e.Once(t.Context(), want, ""); len(r.Changed) != len(want) || !r.Clean() {
		t.Fatalf("changed %d peers, failed %v", len(r.Changed), r.Failed)
	}
	// All prefixes move to the next peer at once.
	moved := make([]desired.Peer, len(want))
	for i := range want {
		moved[i] = want[i]
		moved[i].AllowedIPs = want[(i+1)%len(want)].AllowedIPs
	}
	if r := e.Once(t.Context(), moved, ""); len(r.Changed) != len(want) || !r.Clean() {
		t.Fatalf("moved %d prefixes, failed %v", len(r.Changed), r.Failed)
	}
	if plan, err := e.Plan(t.Context(), moved); err != nil || len(plan) > 0 {
		t.Errorf("after the move %d changes are left (%v)", len(plan), err)
	}
}

func manyPeers(t testing.TB, link string, n int) []desired.Peer {
	var out []desired.Peer
	for i := range n {
		_, public := newKey(t)
		addr := netip.AddrFrom4([4]byte{242, byte(i >> 8), byte(i), 0})
		out = append(out, desired.Peer{
			Device: link, PublicKey: public, PSK: fabric.Secret{1}, AllowedIPs: []netip.Prefix{netip.PrefixFrom(addr, 24)}, Keepalive: 25,
			Endpoint: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(20000+i)),
		})
	}
	return out
}

// BenchmarkObservePeers reads 1 000 peers of a userspace device.
func BenchmarkObservePeers(b *testing.B) {
	w := newTestNode(b)
	link := tunnelLink()
	w.createDevices(b, link)
	want := manyPeers(b, link.Name, 1000)
	e := peerEngine(w)
	if r := e.Once(context.Background(), want, ""); !r.Clean() {
		b.Fatal(r.Failed)
	}
	kind := NewPeers(w.ns)
	for b.Loop() {
		if have, err := kind.Observe(context.Background()); err != nil || len(have) != len(want) {
			b.Fatal(len(have), err)
		}
	}
}

func TestReadPeer(t *testing.T) {
	t.Parallel()
	key := wgtypes.Key{7}
	_, net4, _ := net.ParseCIDR("10.0.0.0/8")
	_, net6, _ := net.ParseCIDR("fd00::/8")
	have := readPeer("hw-wg1", wgtypes.Peer{
		PublicKey: key, AllowedIPs: []net.IPNet{*net6, *net4}, PersistentKeepaliveInterval: 25 * time.Second,
		Endpoint: &net.UDPAddr{IP: net.ParseIP("::ffff:192.0.2.1"), Port: 9},
	})
	want := "hw-wg1/" + key.String() + " 192.0.2.1:9 [10.0.0.0/8 fd00::/8] 25"
	if d := cmp.Diff(want, fmt.Sprint(have.Key(), " ", have.Endpoint, " ", have.AllowedIPs, " ", have.Keepalive)); d != "" {
		t.Errorf("peer (-want +got):\n%s", d)
	}
}
