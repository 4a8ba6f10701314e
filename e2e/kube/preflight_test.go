//go:build kube

package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestPreflightPods tests pods on the gateways' nodes before the installation. They find the ports and
// directions that a firewall between the clusters blocks, the largest packet, and an image that cannot
// be pulled. No pod is left.
func TestPreflightPods(t *testing.T) {
	pair := needClusters(t, samePrefixes)
	if pair.installed != nil {
		pair.installed.uninstall(t)
	}
	s := newClusterset(t, pair, "testdata/clusterset.yaml")
	pair.must(t, "", "hawser", "allocate", s.path("repo"))

	// preflight returns the codes with their subjects, and the measured paths.
	preflight := func(t *testing.T, image string) (codes, paths []string) {
		t.Helper()
		out, err := pair.try(t.Context(), s.path("repo"), "", "sh", "-c", "hawser preflight --pods -o json --image "+image+" 2>/dev/null")
		if err != nil && !strings.Contains(err.Error(), "exit status 1") {
			t.Fatal(err)
		}
		var got struct {
			Clusters []struct {
				Findings []struct{ Code, Severity, Path, Summary string }
			}
			Paths []struct {
				From, To, At string
				Answered     int
				Largest      int
			}
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, c := range got.Clusters {
			for _, f := range c.Findings {
				if !slices.Contains([]string{"identity-missing", "node-cidrs-unused", "mcs-crds-exist"}, f.Code) { // left by other tests
					codes = append(codes, f.Path+" "+f.Code+" "+f.Severity)
					t.Log(f.Path, f.Code, f.Summary)
				}
			}
		}
		for _, w := range got.Paths {
			paths = append(paths, fmt.Sprint(w.From, " ", w.To, " ", w.At, " ", w.Answered > 0, " ", w.Largest))
		}
		for _, c := range pair.clusters {
			if out := pair.kubectl(t, c, "get", "namespaces", "-o", "name"); strings.Contains(out, "preflight") {
				t.Errorf("%s: something is left: %s", c, out)
			}
		}
		return codes, paths
	}
	wide := func(argv ...string) {
		t.Helper()
		pair.must(t, "", append([]string{"kubelab", "--dir", pair.dir, "net", "internet"}, argv...)...)
	}

	codes, paths := preflight(t, "hawser.dev/hawser-agent:lab")
	if len(codes) > 0 || !slices.Contains(paths, "c1/c1-a c2/c2-a 172.31.2.11:51820 true 1500") ||
		!slices.Contains(paths, "c2/c2-a c1/c1-a 172.31.1.11:51820 true 1500") {
		t.Errorf("all is well: %q, %q", codes, paths)
	}

	// A firewall of c2 drops new connections. Only small packets pass to c1.
	wide("nft", "add table inet cut; add chain inet cut f { type filter hook forward priority 0; }; "+
		"add rule inet cut f ip daddr 172.31.2.11 meta l4proto udp ct state new drop")
	t.Cleanup(func() { wide("nft", "delete table inet cut") })
	wide("ip", "link", "set", "lan1", "mtu", "1300")
	t.Cleanup(func() { wide("ip", "link", "set", "lan1", "mtu", "1500") })
	codes, paths = preflight(t, "hawser.dev/hawser-agent:lab")
	if want := []string{"clusters[c1].gateways[c1-a] port-closed warning", "clusters[c2].gateways[c2-a] path-mtu-small warning"}; !slices.Equal(codes, want) ||
		!slices.Contains(paths, "c2/c2-a c1/c1-a 172.31.1.11:51820 true 1300") {
		t.Errorf("one direction: %q, want %q (%q)", codes, want, paths)
	}

	// The firewall drops the other direction too, so no path is left.
	wide("nft", "add rule inet cut f ip daddr 172.31.1.11 meta l4proto udp ct state new drop")
	codes, _ = preflight(t, "hawser.dev/hawser-agent:lab")
	if want := []string{"clusters[c1].gateways[c1-a] port-closed error", "clusters[c2].gateways[c2-a] port-closed error"}; !slices.Equal(codes, want) {
		t.Errorf("both directions: %q, want %q", codes, want)
	}
	codes, _ = preflight(t, "hawser.dev/no-such-image:lab")
	if want := []string{"clusters[c1].gateways[c1-a] image-not-pulled error", "clusters[c2].gateways[c2-a] image-not-pulled error"}; !slices.Equal(codes, want) {
		t.Errorf("no image: %q, want %q", codes, want)
	}
}
