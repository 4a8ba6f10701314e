//go:build kube

package kube

import (
	"encoding/json"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/benchmark"
)

// TestBenchmark tests that hawser benchmark measures between pods of two clusters, and without Hawser
// between their gateways' nodes. It reports a closed port of the underlay, and removes its pods.
func TestBenchmark(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	measure := func() (got struct {
		Pods     benchmark.Result
		Underlay *benchmark.Result
		Skipped  string `json:"underlay_skipped"`
	}) {
		t.Helper()
		out, err := s.try(t.Context(), s.path("repo"), "", "sh", "-c", "hawser benchmark c1 c2 --for 1s --image hawser.dev/hawser-agent:lab -o json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Log(out)
		for _, c := range s.clusters {
			if left := s.kubectl(t, c, "get", "namespaces", "-o", "name"); strings.Contains(left, "benchmark") {
				t.Errorf("%s: something is left: %s", c, left)
			}
		}
		return got
	}
	whole := func(r benchmark.Result) bool {
		return r.Error == "" && r.Throughput > 0 && r.Connections > 0 && r.RTT > 0 && r.RTT99 >= r.RTT
	}
	got := measure()
	if !whole(got.Pods) || !strings.HasPrefix(got.Pods.Target, "server.dynamic-hawser-benchmark-") || got.Underlay == nil || !whole(*got.Underlay) ||
		got.Underlay.Target != "172.31.2.11:5201" || got.Skipped != "" {
		t.Errorf("%+v", got)
	}
	wide := func(argv ...string) { s.kubelab(t, append([]string{"net", "internet"}, argv...)...) }
	// The filter also sees the packets between nodes of one cluster, because its networks are bridges.
	// The packets of pods have other destinations.
	wide("nft", "add table inet cut; add chain inet cut f { type filter hook forward priority 0; }; add rule inet cut f ip daddr 172.31.2.11 tcp dport 5201 reject with tcp reset")
	t.Cleanup(func() { wide("nft", "delete table inet cut") })
	if got = measure(); !whole(got.Pods) || got.Underlay != nil || !strings.Contains(got.Skipped, "connection refused") {
		t.Errorf("%+v", got)
	}
}
