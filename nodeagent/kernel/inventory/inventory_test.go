package inventory

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestNoPlaceForKeys checks that no field can contain a secret. A field of bytes, or of a type of
// another package, could print anything.
func TestNoPlaceForKeys(t *testing.T) {
	t.Parallel()
	secret := regexp.MustCompile(`(?i)private|preshared|psk|secret|token|password|identity`)
	seen, types := 0, map[reflect.Type]bool{}
	var walk func(at string, typ reflect.Type)
	walk = func(at string, typ reflect.Type) {
		seen++
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			if typ.Elem().Kind() == reflect.Uint8 {
				t.Errorf("%s holds bytes", at)
			}
			walk(at, typ.Elem())
		case reflect.Struct:
			if typ == reflect.TypeFor[time.Time]() || types[typ] {
				return
			}
			types[typ] = true
			if typ.PkgPath() != reflect.TypeFor[Kernel]().PkgPath() {
				t.Errorf("%s is a %s, which may hold anything", at, typ)
			}
			for f := range typ.Fields() {
				if f.Type.Kind() == reflect.Bool {
					continue
				}
				if secret.MatchString(f.Name) || secret.MatchString(f.Tag.Get("json")) {
					t.Errorf("%s.%s has the name of a secret", at, f.Name)
				}
				walk(at+"."+f.Name, f.Type)
			}
		case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Uint32, reflect.Uint64:
		default:
			t.Errorf("%s is a %s, which may hold anything", at, typ)
		}
	}
	walk("Kernel", reflect.TypeFor[Kernel]())
	if seen < 130 {
		t.Errorf("only %d fields were seen: correct this test", seen)
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	prio, bits, number := 0, 16, uint64(80)
	element := NFTValue{Concat: []NFTValue{{Prefix: &NFTPrefix{"10.7.0.0", 16}}, {Number: &number}}}
	k := Kernel{
		Cluster: "g1", Node: "n1", Release: "6.1.0", Conntrack: Conntrack{Count: 7, Max: 100}, Errors: []string{"list neighbours: no"},
		Links: []Link{{
			IfName: "hw-vx0", Flags: []string{"UP"}, MTU: 1450, OperState: "UNKNOWN", LinkType: "ether", LinkInfo: &LinkInfo{Kind: "vxlan"},
			AddrInfo: []Addr{{Family: "inet", Local: "241.0.0.1", PrefixLen: 32}}, Stats: Stats{TX: Traffic{Packets: 3, Dropped: 1}},
		}},
		Rules: []Rule{
			{Family: "inet", Priority: 7300, Protocol: "73", Src: "all", Table: "7300"},
			{Family: "inet6", Priority: 5, Not: true, Src: "fd00::", SrcLen: &bits, FwMark: "0x10", FwMask: "0xf0", IIF: "x", DPortStart: 7, DPortEnd: 9, Protocol: "boot"},
		},
		Routes: []Route{
			{Table: "7300", Dst: "10.7.0.0/16", Type: "unicast", Dev: "hw-wg1", PrefSrc: "10.7.0.1", Protocol: "73"},
			{Table: "main", Dst: "default", Type: "unicast", Protocol: "boot", Nexthops: []Nexthop{{Gateway: "192.0.2.1", Dev: "a"}, {Via: &Via{"inet6", "fe80::1"}, Dev: "b"}}},
		},
		RoutesOmitted: 4,
		Wireguard:     []Wireguard{{Link: "hw-wg1", Port: 51820, Peers: []Peer{{PublicKey: "abc", AllowedIPs: []string{"10.7.0.0/16"}}}}},
		Neighbors:     []Neighbor{{Dev: "hw-vx0", Dst: "10.9.9.1", LLAddr: "02:00:00:00:00:01", State: []string{"PERMANENT"}}},
		FDB:           []FDBEntry{{IfName: "hw-vx0", MAC: "02:00:00:00:00:01", Dst: "192.0.2.1", State: "permanent"}},
		NFTables: []NFTObject{
			{Metainfo: &NFTMetainfo{1}},
			{Table: &NFTTable{Family: "ip", Name: "filter"}},
			{Table: &NFTTable{Family: "inet", Name: "hawser"}},
			{Chain: &NFTChain{Family: "ip", Table: "filter", Name: "FORWARD", Type: "filter", Hook: "forward", Prio: &prio, Policy: "drop", Rules: 12}},
			{Set: &NFTSet{Name: "services4", Type: NFTType{"ipv4_addr"}, Elem: slices.Repeat([]NFTValue{{Text: "e"}}, 30)}},
			{Map: &NFTSet{Name: "pairs4", Type: NFTType{"ipv4_addr", "inet_service"}, Map: "verdict", Stmt: []NFTStatement{{Counter: true}}, Elem: []NFTValue{
				{Pair: []NFTValue{element, {Goto: &NFTGoto{"chain"}}}}, {Elem: &NFTElement{Val: element, Counter: &NFTCounter{1, 2}}},
				{Range: []NFTValue{{Text: "10.0.0.1"}, {Text: "10.0.0.9"}}},
			}}},
		},
		Sysctls: map[string]string{"net/ipv4/ip_forward": "1"},
	}
	// The command prints what it reads as JSON from the agent.
	raw, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	var read Kernel
	if err := json.Unmarshal(raw, &read); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(k, read); d != "" {
		t.Errorf("written and read again (-want +have):\n%s", d)
	}
	var out bytes.Buffer
	if err := Print(&out, read); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"node n1 of cluster g1, Linux 6.1.0, conntrack 7 of 100\nnot read: list neighbours: no\n",
		"  hw-vx0: vxlan, up, state unknown, mtu 1450, 241.0.0.1/32; received 0 packets (0 errors, 0 dropped), sent 3 packets (0 errors, 1 dropped)\n",
		"  inet 7300: from all lookup 7300 (protocol 73)\n  inet6 5: not from fd00::/16 fwmark 0x10/0xf0 iif x dport 7-9 drop (protocol boot)\n",
		"  table 7300: unicast 10.7.0.0/16 dev hw-wg1 src 10.7.0.1 (protocol 73)\n" +
			"  table main: unicast default via 192.0.2.1 dev a via fe80::1 dev b (protocol boot)\n  and 4 more of other programs\n",
		"  hw-wg1: no process answers, port 51820, public key \n    peer abc at no endpoint, handshake 0001-01-01T00:00:00Z, received 0, sent 0, allowed 10.7.0.0/16\n",
		"  hw-vx0 10.9.9.1 at 02:00:00:00:00:01, permanent\n", "  hw-vx0 02:00:00:00:00:01 to 192.0.2.1, permanent\n",
		"  table ip filter\n    chain FORWARD (filter hook forward priority 0 policy drop): 12 rules\n",
		"  services4: 30 elements\n" + strings.Repeat("    e\n", 20) + "    and 10 more (-o json has all)\n",
		"  pairs4: 3 elements\n    10.7.0.0/16 . 80 : goto chain\n    10.7.0.0/16 . 80 counter packets 1 bytes 2\n    10.0.0.1-10.0.0.9\n",
		"  net/ipv4/ip_forward = 1\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q in\n%s", want, out.String())
		}
	}
}
