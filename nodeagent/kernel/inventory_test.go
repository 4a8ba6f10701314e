package kernel

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netns"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/inventory"
	"hawser.dev/hawser/schema/fabric"
)

// TestInventory: what is there is told, of ours and of others, and no key of it.
func TestInventory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wg := tunnelLink()
	w.make(t, nodeLink(), wg)
	keys := peerWithKeys(t, w, wg.Name)
	w.ip(t, "addr add 10.9.9.9/24 dev hw-vx0")
	w.ip(t, "rule add from 10.5.0.0/16 fwmark 0x10/0xf0 lookup 500 priority 123")
	w.ip(t, "route add blackhole 10.6.0.0/16 table 500 protocol 73")
	w.ip(t, "neigh add 10.9.9.1 lladdr 02:00:00:00:00:09 dev hw-vx0 nud permanent")
	run(t, "ip", "netns", "exec", w.name, "nft", "add table ip others; add chain ip others forward { type filter hook forward priority 5; policy drop; }; "+
		"add rule ip others forward tcp dport 80 drop; add rule ip others forward accept; add chain ip others plain")

	k := w.ns.Inventory(t.Context(), []string{"net/ipv4/conf/lo/rp_filter", "net/ipv4/nothing"})
	if len(k.Errors) > 0 {
		t.Fatalf("errors: %q", k.Errors)
	}
	raw, err := json.MarshalIndent(k, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, there bool) {
		t.Helper()
		if !there {
			t.Errorf("%s is missing in\n%s", what, raw)
		}
	}
	want("link", slices.ContainsFunc(k.Links, func(l inventory.Link) bool {
		return l.Name == "hw-vx0" && l.Up && l.MTU == 1450 && l.VXLAN != nil && l.VXLAN.VNI == 73 && slices.Contains(l.Addresses, "10.9.9.9/24")
	}))
	want("rule", slices.ContainsFunc(k.Rules, func(r inventory.Rule) bool {
		r.Protocol = 0 // each ip(8) gives another one
		return r == inventory.Rule{Family: 4, Priority: 123, Select: "from 10.5.0.0/16 fwmark 0x10/0xf0", Table: 500}
	}))
	want("blackhole", slices.Contains(k.Routes, inventory.Route{Table: 500, Dst: "10.6.0.0/16", Type: "blackhole", Protocol: 73}))
	want("route of a link", slices.ContainsFunc(k.Routes, func(r inventory.Route) bool {
		return r.Table == 254 && r.Dst == "10.9.9.0/24" && r.Link == "hw-vx0" && r.Src == "10.9.9.9"
	}))
	want("neighbour", slices.Contains(k.Neighbours, inventory.Neighbour{Link: "hw-vx0", Addr: "10.9.9.1", MAC: "02:00:00:00:00:09", State: "permanent"}))
	want("table", slices.ContainsFunc(k.Tables, func(table inventory.Table) bool {
		return table.Family == "ip" && table.Name == "others" && slices.ContainsFunc(table.Chains, func(c inventory.Chain) bool {
			return c.Name == "forward" && c.Type == "filter" && c.Hook == "forward" && c.Priority == 5 && c.Policy == "drop" && c.Rules == 2
		})
	}))
	want("device", len(k.Wireguard) == 1 && k.Wireguard[0].PublicKey == keys.public && k.Wireguard[0].Port == 51820)
	want("peer", len(k.Wireguard) == 1 && len(k.Wireguard[0].Peers) == 1 && k.Wireguard[0].Peers[0].PublicKey == keys.remote &&
		k.Wireguard[0].Peers[0].Shared && k.Wireguard[0].Peers[0].AllowedIPs[0] == "10.8.0.0/16")
	want("sysctls", k.Sysctls["net/ipv4/conf/lo/rp_filter"] != "" && k.Sysctls["net/ipv4/ip_forward"] != "" && k.Conntrack.Max > 0)
	keys.lookFor(t, k)
}

// pair is the keys of a WireGuard device and of its peer.
type pair struct {
	private, psk   fabric.Secret
	public, remote string
}

// peerWithKeys configures a WireGuard device, with a peer that has a pre-shared key.
func peerWithKeys(t *testing.T, w *world, link string) (keys pair) {
	t.Helper()
	keys.private, keys.public = newKey(t)
	keys.psk, _ = newKey(t)
	_, keys.remote = newKey(t)
	peer := desired.Peer{
		Link: link, PublicKey: keys.remote, PSK: keys.psk, Endpoint: netip.MustParseAddrPort("192.0.2.9:51820"), Keepalive: 25,
		AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.8.0.0/16")},
	}
	made := converge.Engine[struct{}]{Stages: []converge.Stage[struct{}]{
		converge.NewStage(NewWireguards(w.ns), func(struct{}) []desired.Wireguard {
			return []desired.Wireguard{{Link: link, PrivateKey: keys.private, ListenPort: 51820}}
		}, nil),
		converge.NewStage(NewPeers(w.ns), func(struct{}) []desired.Peer { return []desired.Peer{peer} }, nil),
	}, Decommission: func(struct{}) bool { return false }}
	if r := made.Once(t.Context(), struct{}{}, ""); !r.Clean() {
		t.Fatalf("make peers: %v %v", r.Failed, r.Blocked)
	}
	return keys
}

// lookFor fails the test if a key that is not public is told in any form.
func (p pair) lookFor(t *testing.T, k inventory.Kernel) {
	t.Helper()
	var text bytes.Buffer
	if err := errors.Join(json.NewEncoder(&text).Encode(k), inventory.Print(&text, k)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), p.public) {
		t.Error("lacks the public key: what is looked for would not be found")
	}
	for name, key := range map[string]fabric.Secret{"private": p.private, "preshared": p.psk} {
		for _, form := range []string{base64.StdEncoding.EncodeToString(key[:]), hex.EncodeToString(key[:])} {
			if strings.Contains(text.String(), form) {
				t.Errorf("holds the %s key", name)
			}
		}
	}
}

// TestInventoryOfOurTable: our rules are told by their digests, and all elements.
func TestInventoryOfOurTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	read := func() (out inventory.Kernel) {
		if err := w.ns.takeTables(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if k := read(); len(k.Tables)+len(k.Sets) != 0 {
		t.Fatalf("of an empty kernel: %+v", k)
	}
	space, err := netns.GetFromPath("/run/netns/" + w.name)
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	opts := NFTOptions{NetNS: int(space)}
	table := desired.Table{Name: desired.TableName, MSS4: 1300, MSS6: 1280}
	if err := NewTables(opts).Apply(t.Context(), []diff.Change[desired.Table]{{Op: diff.Create, Key: table.Key(), Want: table}}); err != nil {
		t.Fatal(err)
	}
	var changes []diff.Change[desired.Element]
	for _, e := range []desired.Element{
		{Set: desired.SetTunnels, Family: 4, ID: "241.0.0.1"}, {Set: desired.SetEgress, Family: 4, ID: "10.7.0.9", Value: "242.1.0.1"},
	} {
		changes = append(changes, diff.Change[desired.Element]{Op: diff.Create, Key: e.Key(), Want: e})
	}
	if err := NewElements(opts).Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	k := read()
	if len(k.Tables) != 1 || k.Tables[0].Family != "inet" || k.Tables[0].Name != "hawser" {
		t.Fatalf("tables: %+v", k.Tables)
	}
	for _, c := range k.Tables[0].Chains {
		if c.Rules != len(c.Digests) || slices.Contains(c.Digests, "") {
			t.Errorf("chain %s has %d rules with digests %q", c.Name, c.Rules, c.Digests)
		}
	}
	want := []inventory.Set{{Name: "egress4", Count: 1, Elements: []string{"10.7.0.9 : 242.1.0.1"}}, {Name: "tunnels4", Count: 1, Elements: []string{"241.0.0.1"}}}
	if !slices.EqualFunc(k.Sets, want, func(a, b inventory.Set) bool {
		return a.Name == b.Name && a.Count == b.Count && slices.Equal(a.Elements, b.Elements)
	}) {
		t.Errorf("sets: %+v", k.Sets)
	}
}
