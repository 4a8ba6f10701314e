package main

import (
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/schema/load"
)

// TestVariants tests that every variant is a valid topology with its shape and families, and
// that the usual one equals the file.
func TestVariants(t *testing.T) {
	t.Parallel()
	from := filepath.Join("testdata", "lab")
	written, err := fs.ReadFile(os.DirFS(from), "clusterset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if usual.topology(string(written)) != string(written) {
		t.Error("the usual variant differs from the file")
	}
	networks := map[string]string{"g1": autoNetwork, "g2": tunnelNetwork, "g3": autoNetwork}
	for _, shape := range []string{mesh, hub, links} {
		for _, family := range []string{four, six, dual} {
			v := variant{shape, family}
			to := t.TempDir()
			if err := v.write(from, to, networks); err != nil {
				t.Fatal(err)
			}
			text, err := fs.ReadFile(os.DirFS(to), "clusterset.yaml")
			if err != nil {
				t.Fatal(err)
			}
			b := chaosLab{options: options{variant: v}, text: text}
			for _, text := range []string{string(text), b.withGateway(), string(text) + extraExport} {
				checkVariant(t, v, text, networks)
			}
			if v.check() != nil || (v.String() == "") != (v == usual) {
				t.Errorf("variant %v: check() = %v, String() = %q", v, v.check(), v.String())
			}
		}
	}
	if (variant{"ring", four}).check() == nil || (variant{mesh, "5"}).check() == nil {
		t.Error("an unknown shape or family was accepted")
	}
}

func checkVariant(t *testing.T, v variant, text string, networks map[string]string) {
	t.Helper()
	// The lab adds the recipient, as a user would.
	const recipient = "    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n\n"
	text = strings.ReplaceAll(text, "    podCIDRs:", recipient+"    podCIDRs:")
	set, _, list := load.Topology("clusterset.yaml", []byte(text))
	if list.HasErrors() {
		t.Fatalf("%v: %v", v, list)
	}
	if have := string(set.Spec.Connectivity.Mode); have != v.shape {
		t.Errorf("%v: shape %s", v, have)
	}
	for _, c := range set.Spec.Clusters {
		if string(c.NodeNetwork) != networks[c.Name] {
			t.Errorf("%v: cluster %s has nodeNetwork %q, want %q", v, c.Name, c.NodeNetwork, networks[c.Name])
		}
		for _, prefixes := range [][]netip.Prefix{c.PodCIDRs, c.ServiceCIDRs} {
			for _, family := range []int{4, 6} {
				has := slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return familyOf(p.Addr()) == family })
				if has != slices.Contains(v.families(), family) {
					t.Errorf("%v: cluster %s has %v", v, c.Name, prefixes)
				}
			}
		}
		for _, g := range c.Gateways {
			if len(g.Endpoints) != len(v.families()) || strings.HasPrefix(g.Endpoints[0], "2001:") != (v.family != four) {
				t.Errorf("%v: gateway %s is at %v", v, g.Name, g.Endpoints)
			}
		}
	}
}

func TestNodeAddress(t *testing.T) {
	t.Parallel()
	for pod, want := range map[string]string{"10.7.3.9": "10.7.3.1", "fd00:10:7::3:109": "fd00:10:7::3:1"} {
		if have := nodeAddress(netip.MustParseAddr(pod)); have.String() != want {
			t.Errorf("node address of pod %s: %s, want %s", pod, have, want)
		}
	}
}
