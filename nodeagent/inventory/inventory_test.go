package inventory

import (
	"bytes"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestNoPlaceForKeys: nothing that could hold a secret is a part of what is told. A
// field of bytes, or of a type of somebody else's, may print whatever it holds.
func TestNoPlaceForKeys(t *testing.T) {
	t.Parallel()
	secret := regexp.MustCompile(`(?i)private|preshared|psk|secret|token|password|identity`)
	seen := 0
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
			if typ == reflect.TypeFor[time.Time]() {
				return
			}
			if typ.PkgPath() != reflect.TypeFor[Kernel]().PkgPath() {
				t.Errorf("%s is a %s, which may hold anything", at, typ)
			}
			for f := range typ.Fields() {
				if secret.MatchString(f.Name) || secret.MatchString(f.Tag.Get("json")) {
					t.Errorf("%s.%s has the name of a secret", at, f.Name)
				}
				walk(at+"."+f.Name, f.Type)
			}
		case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Uint64:
		default:
			t.Errorf("%s is a %s, which may hold anything", at, typ)
		}
	}
	walk("Kernel", reflect.TypeFor[Kernel]())
	if seen < 80 {
		t.Errorf("only %d fields were seen: mend this test", seen)
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	k := Kernel{
		Cluster: "g1", Node: "n1", Release: "6.1.0", Conntrack: Conntrack{Count: 7, Max: 100}, Errors: []string{"list neighbours: no"},
		Links:      []Link{{Name: "hw-vx0", Type: "vxlan", MTU: 1450, Up: true, State: "unknown", Addresses: []string{"241.0.0.1/32"}, Sent: Traffic{Packets: 3, Dropped: 1}}},
		Rules:      []Rule{{Family: 4, Priority: 7300, Protocol: 73, Table: 7300}, {Family: 6, Priority: 5, Select: "iif x", Table: 254}},
		Routes:     []Route{{Table: 7300, Dst: "10.7.0.0/16", Type: "unicast", Link: "hw-wg1", Src: "10.7.0.1", Protocol: 73}},
		Left:       4,
		Wireguard:  []Wireguard{{Link: "hw-wg1", Port: 51820, Peers: []Peer{{PublicKey: "abc", AllowedIPs: []string{"10.7.0.0/16"}}}}},
		Neighbours: []Neighbour{{Link: "hw-vx0", Addr: "192.0.2.1", MAC: "02:00:00:00:00:01", State: "permanent", Forward: true}},
		Tables:     []Table{{Family: "ip", Name: "filter", Chains: []Chain{{Name: "FORWARD", Type: "filter", Hook: "forward", Policy: "drop", Rules: 12}}}},
		Sets:       []Set{{Name: "services4", Count: 30, Elements: strings.Fields(strings.Repeat("e ", 30))}},
		Sysctls:    map[string]string{"net/ipv4/ip_forward": "1"},
	}
	var out bytes.Buffer
	if err := Print(&out, k); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"node n1 of cluster g1, Linux 6.1.0, conntrack 7 of 100\nnot read: list neighbours: no\n",
		"  hw-vx0: vxlan, up, state unknown, mtu 1450, 241.0.0.1/32; received 0 packets (0 errors, 0 dropped), sent 3 packets (0 errors, 1 dropped)\n",
		"  IPv4 7300: all lookup 7300 (protocol 73)\n  IPv6 5: iif x lookup 254 (protocol 0)\n",
		"  table 7300: unicast 10.7.0.0/16 dev hw-wg1 src 10.7.0.1 (protocol 73)\n  and 4 more of others\n",
		"  hw-wg1: nobody answers, port 51820, public key \n    peer abc at no endpoint, handshake 0001-01-01T00:00:00Z, received 0, sent 0, allowed 10.7.0.0/16\n",
		"  hw-vx0 forward 192.0.2.1 at 02:00:00:00:00:01, permanent\n",
		"  table ip filter\n    chain FORWARD (filter hook forward priority 0 policy drop): 12 rules\n",
		"  services4: 30 elements\n" + strings.Repeat("    e\n", 20) + "    and 10 more (-o json has all)\n",
		"  net/ipv4/ip_forward = 1\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q in\n%s", want, out.String())
		}
	}
}
