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

// TestVariants: every variant is a valid topology of the shape and the families
// that it is named after, and the usual one is the file as it is.
func TestVariants(t *testing.T) {
	t.Parallel()
	from := filepath.Join("testdata", "lab")
	written, err := fs.ReadFile(os.DirFS(from), "clusterset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if usual.topology(string(written)) != string(written) {
		t.Error("the usual variant is not the file")
	}
	for _, shape := range []string{mesh, hub, links} {
		for _, family := range []string{four, six, dual} {
			v := variant{shape, family}
			to := t.TempDir()
			if err := v.write(from, to); err != nil {
				t.Fatal(err)
			}
			text, err := fs.ReadFile(os.DirFS(to), "clusterset.yaml")
			if err != nil {
				t.Fatal(err)
			}
			b := chaosLab{options: options{variant: v}, text: text}
			for _, text := range []string{string(text), b.withGateway(), string(text) + extraExport} {
				checkVariant(t, v, text)
			}
			if v.check() != nil || (v.String() == "") != (v == usual) {
				t.Errorf("variant %v is not taken, or not told", v)
			}
		}
	}
	if (variant{"ring", four}).check() == nil || (variant{mesh, "5"}).check() == nil {
		t.Error("what there is not was taken")
	}
}

func checkVariant(t *testing.T, v variant, text string) {
	t.Helper()
	// The lab says for whom keys are, as a person would.
	const recipient = "    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n\n"
	text = strings.ReplaceAll(text, "    podCIDRs:", recipient+"    podCIDRs:")
	set, _, list := load.Topology("clusterset.yaml", []byte(text))
	if list.HasErrors() {
		t.Fatalf("%v: %v", v, list)
	}
	if have := string(set.Spec.Connectivity.Mode); have != v.shape {
		t.Errorf("%v: the shape is %s", v, have)
	}
	for _, c := range set.Spec.Clusters {
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

func TestAnswering(t *testing.T) {
	t.Parallel()
	for pod, want := range map[string]string{"10.7.3.9": "10.7.3.1", "fd00:10:7::3:109": "fd00:10:7::3:1"} {
		if have := answering(netip.MustParseAddr(pod)); have.String() != want {
			t.Errorf("%s is answered from %s, want %s", pod, have, want)
		}
	}
}
