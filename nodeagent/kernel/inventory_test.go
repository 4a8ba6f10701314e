package kernel

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/kernel/inventory"
	"hawser.dev/hawser/nodeagent/kernel/nftables"
	"hawser.dev/hawser/schema/fabric"
)

// TestInventory checks that the inventory has objects of Hawser and of other programs, and no
// secret key.
func TestInventory(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	wg := tunnelLink()
	w.createDevices(t, nodeLink(), wg)
	keys := peerWithKeys(t, w, wg.Name)
	run(t, "ip", "netns", "exec", w.name, "nft", "add table ip others; add chain ip others forward { type filter hook forward priority 5; policy drop; }; "+
		"add rule ip others forward tcp dport 80 drop; add rule ip others forward accept")

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
		return l.IfName == "hw-vx0" && l.MTU == 1450 && l.LinkInfo != nil && l.LinkInfo.Data != nil && l.LinkInfo.Data.ID == 73
	}))
	want("chain with a number of rules", slices.ContainsFunc(k.NFTables, func(o inventory.NFTObject) bool {
		return o.Chain != nil && o.Chain.Family == "ip" && o.Chain.Name == "forward" && o.Chain.Rules == 2
	}))
	want("device", len(k.Wireguard) == 1 && k.Wireguard[0].PublicKey == keys.public && k.Wireguard[0].Port == 51820)
	want("peer", len(k.Wireguard) == 1 && len(k.Wireguard[0].Peers) == 1 && k.Wireguard[0].Peers[0].PublicKey == keys.remote &&
		k.Wireguard[0].Peers[0].HasPSK && k.Wireguard[0].Peers[0].AllowedIPs[0] == "10.8.0.0/16")
	want("sysctls", k.Sysctls["net/ipv4/conf/lo/rp_filter"] != "" && k.Sysctls["net/ipv4/ip_forward"] != "" && k.Conntrack.Max > 0)
	keys.checkAbsent(t, k)
}

// wgKeys holds the keys of a WireGuard device and of its peer.
type wgKeys struct {
	private, psk   fabric.Secret
	public, remote string
}

// peerWithKeys configures a WireGuard device, with a peer that has a pre-shared key.
func peerWithKeys(t *testing.T, w *testNode, link string) (keys wgKeys) {
	t.Helper()
	keys.private, keys.public = newKey(t)
	keys.psk, _ = newKey(t)
	_, keys.remote = newKey(t)
	peer := desired.Peer{
		Device: link, PublicKey: keys.remote, PSK: keys.psk, Endpoint: netip.MustParseAddrPort("192.0.2.9:51820"), Keepalive: 25,
		AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.8.0.0/16")},
	}
	made := converge.Engine[struct{}]{Stages: []converge.Stage[struct{}]{
		converge.NewStage(NewWireguards(w.ns), func(struct{}) []desired.Wireguard {
			return []desired.Wireguard{{Device: link, PrivateKey: keys.private, ListenPort: 51820}}
		}, nil),
		converge.NewStage(NewPeers(w.ns), func(struct{}) []desired.Peer { return []desired.Peer{peer} }, nil),
	}, Decommission: func(struct{}) bool { return false }}
	if r := made.Once(t.Context(), struct{}{}, ""); !r.Clean() {
		t.Fatalf("make peers: %v %v", r.Failed, r.Blocked)
	}
	return keys
}

// checkAbsent fails the test if k contains a private key in any form.
func (p wgKeys) checkAbsent(t *testing.T, k inventory.Kernel) {
	t.Helper()
	var text bytes.Buffer
	if err := errors.Join(json.NewEncoder(&text).Encode(k), inventory.Print(&text, k)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), p.public) {
		t.Error("lacks the public key: the search does not work")
	}
	for name, key := range map[string]fabric.Secret{"private": p.private, "preshared": p.psk} {
		for _, form := range []string{base64.StdEncoding.EncodeToString(key[:]), hex.EncodeToString(key[:])} {
			if strings.Contains(text.String(), form) {
				t.Errorf("holds the %s key", name)
			}
		}
	}
}

// TestInventoryOfOurTable checks that the digests of our rules and all elements are in the
// inventory.
func TestInventoryOfOurTable(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	if have := nftInventory(t, ns); len(have) != 1 {
		t.Fatalf("of an empty kernel: %+v", have)
	}
	table := nftSampleTable()
	nftApplyTable(t, ns, table)
	nftMustConverge(t, ns, nftSampleElements())
	rules, elements := 0, 0
	for _, o := range nftInventory(t, ns) {
		switch {
		case o.Rule != nil:
			rules++
			if len(o.Rule.Digest) != 32 {
				t.Errorf("rule %+v", *o.Rule)
			}
		case o.Set != nil:
			elements += len(o.Set.Elem)
		case o.Map != nil:
			elements += len(o.Map.Elem)
		}
	}
	want := 0
	for _, c := range nftChains(table) {
		want += len(c.rules)
	}
	if rules != want || elements != len(nftSampleElements()) {
		t.Errorf("%d rules and %d elements, want %d and %d", rules, elements, want, len(nftSampleElements()))
	}
	ns.nft("add rule inet hawser forward accept")
	if !slices.ContainsFunc(nftInventory(t, ns), func(o inventory.NFTObject) bool { return o.Rule != nil && o.Rule.Digest == "" }) {
		t.Error("another program's rule has a digest")
	}
}

func nftInventory(t *testing.T, ns *nftNS) []inventory.NFTObject {
	t.Helper()
	conn, err := nftables.Dial(int(ns.fd))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	out, err := inventoryRuleset(conn)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestInventoryAsNft checks that tables, chains, rules, sets and elements have the form of `nft -j
// list ruleset`. Expressions of rules are excepted.
func TestInventoryAsNft(t *testing.T) {
	t.Parallel()
	ns := nftNewNS(t)
	ns.nft("list ruleset") // skips the test without nft(8)
	nftApplyTable(t, ns, nftSampleTable())
	nftMustConverge(t, ns, nftSampleElements())
	ns.nft(`
		add table ip others
		add chain ip others forward { type filter hook forward priority 5; policy drop; }
		add chain ip others plain
		add table arp a
		add chain arp a out { type filter hook output priority -7; }
		add table netdev n
		add chain netdev n in { type filter hook ingress device "lo" priority 0; }
		add element inet hawser keep_source4 { 10.77.0.3-10.77.0.9 }
		add rule inet hawser forward accept
	`)
	var printed []byte
	var err error
	ns.inside(func() { printed, err = exec.Command("nft", "-j", "list", "ruleset").Output() })
	if err != nil {
		t.Fatal(err)
	}
	observed, err := json.Marshal(map[string]any{"nftables": nftInventory(t, ns)})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(nftComparable(t, printed), nftComparable(t, observed)); d != "" {
		t.Errorf("(-nft +inventory):\n%s", d)
	}
}

// nftComparable returns the objects of a ruleset by kind, family, table and name or handle. It
// removes fields that only one side has, and the order of elements.
func nftComparable(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var ruleset struct{ NFTables []map[string]map[string]any }
	if err := json.Unmarshal(raw, &ruleset); err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	for _, o := range ruleset.NFTables {
		for kind, fields := range o {
			if kind == "metainfo" {
				fields = map[string]any{"json_schema_version": fields["json_schema_version"]}
			}
			for _, only := range []string{"expr", "digest", "rules", "dev"} { // nft 1.0 lacks dev, too
				delete(fields, only)
			}
			if types, ok := fields["map"].([]any); ok { // since nft 1.1
				fields["map"] = strings.ReplaceAll(strings.Trim(fmt.Sprint(types), "[]"), " ", " . ")
			}
			if flags, ok := fields["flags"].([]any); ok { // dynamic only since nft 1.1
				if flags = slices.DeleteFunc(flags, func(f any) bool { return f == "dynamic" }); len(flags) == 0 {
					delete(fields, "flags")
				} else {
					fields["flags"] = flags
				}
			}
			if elements, ok := fields["elem"].([]any); ok {
				slices.SortFunc(elements, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
			out[fmt.Sprint(kind, fields["family"], fields["table"], fields["name"], fields["handle"])] = fields
		}
	}
	return out
}

// TestInventoryAsIP checks that links, rules, routes, neighbours and forwarding entries have the
// form of ip(8) and bridge(8). The inventory lacks some of their fields.
func TestInventoryAsIP(t *testing.T) {
	t.Parallel()
	w := newTestNode(t)
	w.createDevices(t, nodeLink())
	w.ip(t, "link add name br type bridge")
	w.ip(t, "link add name va type veth peer name vb")
	w.ip(t, "link set vb up master br")
	w.ip(t, "link set va up")
	w.ip(t, "link add name alone up type bridge") // without a carrier
	for _, command := range []string{
		"addr add 10.9.9.9/24 dev hw-vx0", "addr add 10.1.1.1 peer 10.1.1.2/30 dev hw-vx0", "addr add fd00:9::9/64 dev hw-vx0 nodad",
		"rule add from 10.5.0.0/16 fwmark 0x10/0xf0 lookup 500 priority 123 protocol 73",
		"rule add not to 10.6.0.1 iif lo ipproto udp sport 5 dport 7-9 lookup 7300 priority 124 protocol 73",
		"rule add suppress_prefixlength 0 lookup main priority 126 protocol boot", "rule add prohibit fwmark 5 priority 127 protocol kernel", "rule add fwmark 7 oif lo lookup main priority 128 protocol ra",
		"rule add goto 32767 priority 130 protocol static", "-6 rule add from fd00::/16 lookup 7300 priority 7 protocol 73",
		"route add blackhole 10.6.0.0/16 table 500 protocol 73", "route add default via 10.9.9.1 protocol static mtu 1300",
		"route add 10.77.0.0/16 nexthop via 10.9.9.3 weight 2 nexthop via 10.9.9.4", "route add 10.78.0.1 via inet6 fd00:9::1 dev hw-vx0",
		"-6 route add fd00:7::/64 via fd00:9::1 metric 7 src fd00:9::9", "neigh add 10.9.9.1 lladdr 02:00:00:00:00:09 dev hw-vx0 nud permanent",
	} {
		w.ip(t, command)
	}
	w.bridge(t, "fdb append 02:00:00:00:00:09 dst 192.0.2.1 dev hw-vx0")
	k := w.ns.Inventory(t.Context(), nil)
	if len(k.Errors) > 0 {
		t.Fatalf("errors: %q", k.Errors)
	}
	observed := func(value any) (out []map[string]any) {
		t.Helper()
		raw, err := json.Marshal(value)
		if err == nil {
			err = json.Unmarshal(raw, &out)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range out {
			delete(o, "stats64") // changes between the two reads
		}
		return out
	}
	printed := func(program string, args ...string) (out []map[string]any) {
		t.Helper()
		text := run(t, program, append([]string{"-n", w.name, "-j", "-d"}, args...)...)
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%s %q: %v in %s", program, args, err, text)
		}
		return slices.DeleteFunc(out, func(o map[string]any) bool { return o["table"] == "local" && args[len(args)-1] == "all" })
	}
	tests := []struct {
		name              string
		observed, printed []map[string]any
		without           []string // fields that only the inventory has
	}{
		{"links", observed(k.Links), printed("ip", "address"), nil},
		{"rules", observed(k.Rules), append(printed("ip", "-4", "rule"), printed("ip", "-6", "rule")...), []string{"family"}},
		{"routes", observed(k.Routes), append(printed("ip", "-4", "route", "show", "table", "all"), printed("ip", "-6", "route", "show", "table", "all")...), []string{"family"}},
		{"neighbours", observed(k.Neighbors), printed("ip", "neigh", "show", "dev", "hw-vx0"), []string{"dev"}},
		{"forwarding entries", observed(k.FDB), printed("bridge", "fdb", "show", "dev", "hw-vx0"), []string{"ifname"}},
	}
	for _, tt := range tests {
		if len(tt.observed) == 0 {
			t.Errorf("no %s", tt.name)
		}
		rest := tt.printed
		for _, have := range tt.observed {
			for _, field := range tt.without {
				delete(have, field)
			}
			i := slices.IndexFunc(rest, func(o map[string]any) bool { return isSubset(have, o) })
			if i < 0 {
				t.Errorf("%s: none of %v is %v", tt.name, rest, have)
				continue
			}
			rest = slices.Delete(rest, i, i+1)
		}
		if len(rest) > 0 {
			t.Errorf("%s: the inventory lacks %v", tt.name, rest)
		}
	}
}

// isSubset reports whether b contains all of the JSON value a.
func isSubset(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range a {
			if other, has := b[name]; !has || !isSubset(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, isSubset)
	}
	return a == b
}
