package drivertest

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/schema/fabric"
)

// foreignAddr is an address that belongs to no cluster.
const foreignAddr = "10.99.0.1"

// env has three gateways and an attacker on one bridge.
type env struct {
	t        *testing.T // of the current step
	suite    Suite
	six      bool // the underlay
	dir      string
	wan      *namespace
	gateways map[string]*gateway
	attacker *namespace
	epochs   []int                 // current epochs
	seeds    map[int]fabric.Secret // of pre-shared keys, by epoch
	packets  []packet              // of the link between a and b, captured by step wire
}

func newEnv(t *testing.T, s Suite, six bool) *env {
	t.Helper()
	needs(t, s)
	// Short, because it contains Unix sockets.
	dir, err := os.MkdirTemp("", "hwc-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &env{t: t, suite: s, six: six, dir: dir, gateways: map[string]*gateway{}, epochs: []int{1}, seeds: map[int]fabric.Secret{}}
	id := make([]byte, 3)
	random(id)
	prefix := "hwc-" + hex.EncodeToString(id) + "-"
	r.wan = r.newNamespace(prefix+"w", "")
	r.wan.run("ip", "link", "add", "br0", "type", "bridge")
	r.wan.run("ip", "link", "set", "br0", "up")
	for i, name := range []string{"a", "b", "c"} {
		g := &gateway{name: name, index: i + 1, namespace: r.newNamespace(prefix+name, r.address(i+1))}
		g.prepare()
		r.gateways[name] = g
	}
	r.attacker = r.newNamespace(prefix+"x", r.address(66))
	return r
}

// address returns an outer address.
func (r *env) address(i int) string {
	if r.six {
		return "2001:db8::" + strconv.Itoa(i)
	}
	return "192.0.2." + strconv.Itoa(i)
}

// publish writes a fabric with these clusters for every gateway.
func (r *env) publish(names ...string) {
	r.t.Helper()
	prefix := netip.MustParsePrefix
	f := &fabric.Fabric{
		APIVersion: fabric.APIVersion, Name: "drivertest", Domain: "clusterset.local",
		GlobalPools:  []netip.Prefix{prefix("242.0.0.0/8")},
		ServicePools: []netip.Prefix{prefix("243.0.0.0/24")},
		TunnelPools:  []netip.Prefix{prefix("241.0.0.0/24"), prefix("fd00:41::/64")},
		Tunnel: fabric.TunnelDefaults{
			Driver: r.suite.Driver.Traits().Name, Keepalive: fabric.Duration(25 * time.Second),
			IPsec: fabric.IPsec{
				Encapsulation: fabric.EncapsulationAuto, IKEPort: 500, NATPort: 4500,
				Proposals: []string{fabric.ProposalAESGCM, fabric.ProposalChaCha20}, Rekey: fabric.Duration(time.Hour),
			},
		},
		Health: fabric.Health{Interval: fabric.Duration(250 * time.Millisecond), Misses: 3},
		DNS:    fabric.DNS{TTL: fabric.Duration(5 * time.Second), Address: netip.MustParseAddr("169.254.73.53")},
		Epochs: r.epochs,
	}
	for _, name := range names {
		f.Clusters = append(f.Clusters, r.gateways[name].cluster())
	}
	raw, err := fabric.Encode(f)
	if err != nil {
		r.t.Fatal(err)
	}
	packed, err := fabric.Compress(raw)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, g := range r.gateways {
		g.write("fabric/fabric.json.gz", packed)
	}
}

// cluster returns a flat cluster with one gateway and pods of both families.
func (g *gateway) cluster() fabric.Cluster {
	prefix := func(format string) netip.Prefix { return netip.MustParsePrefix(fmt.Sprintf(format, g.index)) }
	return fabric.Cluster{
		Name:         g.name,
		PodCIDRs:     []netip.Prefix{prefix("10.%d.0.0/16"), prefix("fd00:%d::/64")},
		ServiceCIDRs: []netip.Prefix{prefix("10.10%d.0.0/16")},
		GlobalCIDRs:  []netip.Prefix{prefix("242.%d.0.0/24")},
		EgressMode:   fabric.EgressShared,
		EgressIPs:    []netip.Addr{netip.MustParseAddr(fmt.Sprintf("242.%d.0.1", g.index))},
		Gateways: []fabric.Gateway{{
			Name: g.name, Node: "node-" + g.name, Endpoints: []string{g.outer}, Port: 51820,
			Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("241.0.0.%d", g.index)), netip.MustParseAddr(fmt.Sprintf("fd00:41::%d", g.index))},
			Keys:      g.public(),
		}},
	}
}

// prepare generates keys and facts, and adds the pod's address to the host.
func (g *gateway) prepare() {
	g.env.t.Helper()
	g.run("ip", "addr", "add", g.pod(false)+"/32", "dev", "lo")
	g.run("ip", "addr", "add", g.pod(true)+"/128", "dev", "lo", "nodad")
	g.before = g.inventory()
	g.write("facts/nodes.yaml", []byte(fmt.Sprintf(`apiVersion: v1
kind: Node
metadata: {name: node-%s}
spec: {podCIDRs: [10.%d.0.0/16, "fd00:%d::/64"]}
status: {addresses: [{type: InternalIP, address: "%s"}]}
`, g.name, g.index, g.index, g.outer)))
	g.seal()
}

// needs skips the test with a reason if this machine cannot run the suite.
func needs(t *testing.T, s Suite) {
	t.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "root"
	}
	for _, tool := range []string{"ip", "nft", "ping", "nsenter", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = tool
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		missing = "tun"
	}
	if s.Missing != "" {
		missing = s.Missing
	}
	switch {
	case missing == "":
	case os.Getenv("REQUIRE_KERNEL") == "1":
		t.Fatal("needs " + missing)
	default:
		t.Skip("needs " + missing)
	}
}

// write atomically replaces a file of the gateway.
func (g *gateway) write(name string, data []byte) {
	t := g.env.t
	t.Helper()
	path := g.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Replace(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (g *gateway) path(name string) string { return filepath.Join(g.env.dir, g.name, name) }

func random(b []byte) {
	_, _ = rand.Read(b) // never fails
}

func number(n int) string { return strconv.Itoa(n) }

func hexOf(text string) string { return hex.EncodeToString([]byte(text)) }
