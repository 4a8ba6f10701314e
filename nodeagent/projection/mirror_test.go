package projection_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/projection"
)

var (
	textIPv4 = regexp.MustCompile(`\b(\d+\.\d+\.\d+\.\d+)(/\d+)?\b`)
	textIPv6 = regexp.MustCompile(`"[0-9a-f]+:[0-9a-f:]*:[0-9a-f:]*(/\d+)?"`)
)

// mirrored replaces each IPv4 address in a text with an IPv6 address with the same last 32
// bits.
func mirrored(text string) string {
	return textIPv4.ReplaceAllStringFunc(text, func(found string) string {
		addr, length, isPrefix := strings.Cut(found, "/")
		four := netip.MustParseAddr(addr).As4()
		raw := [16]byte{0: 0xfd, 1: 0x46}
		copy(raw[12:], four[:])
		out := netip.AddrFrom16(raw).String()
		if isPrefix {
			bits, _ := strconv.Atoi(length)
			out += "/" + strconv.Itoa(bits+96)
		}
		return out
	})
}

// TestFamiliesMirror replaces every IPv4 address of a world and checks that IPv6 gets the same
// objects. It ignores results of hashes, because the addresses are part of their input.
func TestFamiliesMirror(t *testing.T) {
	t.Parallel()
	seen := 0
	for file, w := range worlds(t) {
		for name, in := range w.inputs {
			raw := toJSON(t, in)
			if textIPv6.MatchString(raw) {
				continue
			}
			seen++
			var six projection.Input
			if err := json.Unmarshal([]byte(mirrored(raw)), &six); err != nil {
				t.Fatalf("%s %s: %v", file, name, err)
			}
			six.Keys = in.Keys
			s, problems := projection.Desired(six)
			want, have := essence(w.states[name]), essence(s)
			for _, p := range w.faults[name] {
				want = append(want, fmt.Sprint("problem ", p))
			}
			for _, p := range problems {
				have = append(have, fmt.Sprint("problem ", p))
			}
			for i := range want {
				want[i] = mirrored(want[i])
			}
			slices.Sort(want)
			slices.Sort(have)
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("%s %s (-want as IPv4 +got as IPv6):\n%s", file, name, diff)
			}
			if strings.Contains(strings.Join(have, " "), "ipv4") || textIPv4.MatchString(strings.Join(have, " ")) {
				t.Errorf("%s %s: an IPv4 object is left", file, name)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d nodes have IPv4 alone", seen)
	}
}

// essence returns a line for each object, without the differences between the families.
func essence(s desired.State) []string {
	var out []string
	line := func(parts ...any) { out = append(out, fmt.Sprintln(parts...)) }
	for _, l := range s.Devices {
		line("link", l.Name, l.Type, l.MAC, l.Local)
	}
	for _, p := range s.Peers {
		line("peer", p.Key(), p.AllowedIPs, p.Endpoint.Addr(), p.Endpoint.Port())
	}
	for _, a := range s.Addresses {
		line("address", a.Key(), a.Scope)
	}
	for _, n := range s.Neighbors {
		if !n.Addr.IsLinkLocalUnicast() {
			line("neighbour", n.Key(), n.MAC)
		}
	}
	for _, r := range s.Rules {
		if r.Table != desired.TableBound {
			line("rule", r.Priority, r.IIF, r.Table)
		}
	}
	for _, r := range s.Routes {
		// Only IPv6 has a route for the pool of tunnel addresses, see routeTunnels.
		if r.Table > desired.TableReturnBase { // default route of a return path
			line("home", r.Table, r.Dst.Bits(), r.Device, r.Via.IsValid())
		} else if r.Table != desired.TableBound && r.Origin != "tunnel.ipv6Cidr" {
			line("route", r.Table, r.Dst, r.Type, r.Device, r.Via.IsValid(), r.Src, r.MTU)
		}
	}
	chosen := []string{desired.SetSlots, desired.SetShared, desired.SetICMPEcho, desired.SetEgress}
	for _, e := range s.Elements {
		value := strings.TrimRight(e.Value, "46")
		if slices.Contains(chosen, e.Set) {
			value = ""
		}
		if !slices.Contains([]string{desired.SetMapped, desired.SetUnmapped, desired.SetOwners, desired.SetReverse}, e.Set) {
			line("element", strings.TrimRight(e.Set, "46"), e.ID, value, e.Origin)
		} else {
			line("element", e.Set, e.ID, e.Value, e.Origin)
		}
	}
	for _, v := range s.Services {
		line("service", v.Key(), v.VIPs, v.Clusters)
	}
	return out
}
