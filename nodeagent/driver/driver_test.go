package driver

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/schema/fabric"
)

var update = flag.Bool("update", false, "rewrite the expected objects")

func site() LocalGateway {
	return LocalGateway{
		Cluster: "g1", V4: true, V6: true, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		Gateway: &fabric.Gateway{
			Name: "a", Node: "n", Port: 51820,
			Addresses: []netip.Addr{netip.MustParseAddr("241.0.0.1"), netip.MustParseAddr("fd00:41::1")},
			Keys:      []fabric.Key{{Epoch: 1, Public: "own", Ed25519: "own"}},
		},
		Keys: &fabric.Keys{Epochs: []fabric.EpochKeys{{
			Epoch: 1, Gateways: map[string]fabric.Secret{"a": {1}}, Ed25519: map[string]fabric.Secret{"a": {1}},
		}}},
		IPsec: fabric.IPsec{
			Encapsulation: fabric.EncapsulationAuto, IKEPort: 500, NATPort: 4500, Proposals: []string{fabric.ProposalAESGCM},
			Rekey: fabric.Duration(time.Hour),
		},
	}
}

// far returns the i-th remote gateway, in a cluster of its own. Remotes with odd i have an IPv6
// outer address.
func far(driver string, i int) Remote {
	addr := netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 10+i))
	if i%2 == 1 {
		addr = netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", 10+i))
	}
	return Remote{
		Cluster: fmt.Sprintf("r%d", i), Link: fabric.LinkSettings{Driver: driver, Keepalive: fabric.Duration(25 * time.Second)},
		Epoch: 1, LocalBasePort: 51820, RemoteBasePort: 51820 + 100*i, Addr: addr, Addrs: []netip.Addr{addr}, MTU: 1400,
		Prefixes: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("242.%d.0.0/24", i)), netip.MustParsePrefix(fmt.Sprintf("fd00:42:%d::/64", i))},
		Gateway: &fabric.Gateway{
			Name: "a", Ordinal: i, Port: 51820 + 100*i,
			Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("241.0.0.%d", 10+i)), netip.MustParseAddr(fmt.Sprintf("fd00:41::%d", 10+i))},
			Keys:      []fabric.Key{{Epoch: 1, Public: fmt.Sprintf("key%d", i), Ed25519: fmt.Sprintf("key%d", i)}},
		},
	}
}

// objects returns one line for each object of b.
func objects(b Result) []string {
	var out []string
	add := func(kind, key string, fields []diff.Field) {
		line := kind + " " + key
		for _, f := range fields {
			if f.Value != "" {
				line += " " + f.Name + "=" + f.Text()
			}
		}
		out = append(out, line)
	}
	addLines(add, "sysctl", b.Sysctls)
	addLines(add, "link", b.Devices)
	addLines(add, "wireguard", b.Wireguards)
	addLines(add, "ipsec", b.IPsecs)
	addLines(add, "peer", b.Peers)
	addLines(add, "address", b.Addresses)
	addLines(add, "neighbour", b.Neighbors)
	addLines(add, "forward", b.Forwards)
	addLines(add, "rule", b.Rules)
	addLines(add, "route", b.Routes)
	addLines(add, "element", b.Elements)
	for _, c := range b.Tunnels {
		out = append(out, fmt.Sprintf("tunnel %s/%s %s %d via %v %v mtu %d clear %v at %v sent %q received %q",
			c.Cluster, c.Gateway, c.Device, c.Port, c.Via4, c.Via6, c.MTU, c.Clear, c.Endpoint, c.Sent, c.Received))
	}
	for _, p := range b.Problems {
		out = append(out, "problem "+p.Path+" "+p.Code+": "+p.Text)
	}
	return out
}

func addLines[S diff.Spec](add func(kind, key string, fields []diff.Field), kind string, list []S) {
	for _, s := range list {
		add(kind, s.Key(), s.Fields())
	}
}

// TestRemotesApart checks that another remote does not change the objects of existing remotes,
// and that equal arguments return equal results.
func TestRemotesApart(t *testing.T) {
	t.Parallel()
	for _, d := range Drivers() {
		name := d.Traits().Name
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var remotes []Remote
			for i := range 4 {
				remotes = append(remotes, far(name, i))
			}
			all := objects(d.Build(site(), remotes))
			if again := objects(d.Build(site(), remotes)); !slices.Equal(all, again) {
				t.Errorf("equal arguments return (-first +second):\n%s", cmp.Diff(all, again))
			}
			for i := range remotes {
				for _, line := range objects(d.Build(site(), slices.Delete(slices.Clone(remotes), i, i+1))) {
					if !slices.Contains(all, line) {
						t.Errorf("without remote %s there is %s", remotes[i].Cluster, line)
					}
				}
			}
			for _, r := range remotes {
				if !slices.ContainsFunc(all, func(line string) bool { return strings.HasPrefix(line, "tunnel "+r.Cluster+"/a ") }) {
					t.Errorf("no tunnel to %s", r.Cluster)
				}
			}
		})
	}
}

// TestDeviceNames checks that device names fit into the kernel's 15 bytes.
func TestDeviceNames(t *testing.T) {
	t.Parallel()
	for _, d := range Drivers() {
		r := far(d.Traits().Name, 31)
		r.LocalBasePort = 65000
		r.Link.Port = 65000
		s := site()
		s.Gateway.Port = 65000
		for _, l := range d.Build(s, []Remote{r}).Devices {
			if len(l.Name) > 15 {
				t.Errorf("driver %s: link %q", d.Traits().Name, l.Name)
			}
		}
	}
}

func TestVXLAN(t *testing.T) {
	t.Parallel()
	six := far(fabric.DriverVXLAN, 1)
	six.Addrs = append(six.Addrs, netip.MustParseAddr("198.51.100.1"))
	unknown := far(fabric.DriverVXLAN, 2)
	unknown.Addr, unknown.Addrs = netip.Addr{}, nil
	alone := far(fabric.DriverVXLAN, 4)
	alone.Gateway.Addresses = alone.Gateway.Addresses[1:]
	have := strings.Join(objects(vxlan{}.Build(site(), []Remote{far(fabric.DriverVXLAN, 0), six, unknown, alone})), "\n") + "\n"
	if *update {
		if err := os.WriteFile("testdata/vxlan.txt", []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/vxlan.txt")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), have); d != "" {
		t.Errorf("objects (-want +got):\n%s", d)
	}
}

// TestByName checks that ByName finds every driver and nothing else.
func TestByName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{fabric.DriverWireguard, fabric.DriverVXLAN, fabric.DriverIPsec} {
		if d := ByName(name); d == nil || d.Traits().Name != name {
			t.Errorf("%s: %v", name, d)
		}
	}
	if d := ByName("carrier-pigeon"); d != nil {
		t.Errorf("ByName of an unknown driver: %v, want nil", d)
	}
	b := Build(site(), []Remote{far("carrier-pigeon", 0)})
	if lines := objects(b); len(lines) != 0 {
		t.Errorf("an unknown driver built objects: %v", lines)
	}
}
