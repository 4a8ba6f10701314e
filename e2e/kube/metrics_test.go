//go:build kube

package kube

import (
	"strings"
	"testing"
)

// TestMetrics tests that a pod reads the metrics of a gateway's and a worker's agent at their nodes'
// addresses and the topology's port. The port serves nothing else, and the DaemonSets declare it.
func TestMetrics(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	pods := s.kubectl(t, "c1", "-n", "hawser-system", "get", "pods", "-l", "app.kubernetes.io/part-of=hawser", "-o",
		`jsonpath={range .items[*]}{.spec.nodeName} {.status.hostIP} {.spec.containers[0].ports[?(@.name=="metrics")].hostPort}{"\n"}{end}`)
	seen := map[string]bool{}
	for line := range strings.Lines(pods) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "8474" {
			t.Errorf("node, address and port: %q", line)
			continue
		}
		node, at := fields[0], "http://"+fields[1]+":"+fields[2]
		seen[node] = true
		ready := `hawser_ready{cluster="c1",node="` + node + `"} 1`
		s.eventually(t, contains(ready), inPod("c1", "client", "curl", "-s", "-m", "3", at+"/metrics")...)
		path := `hawser_path_up{cluster="c1",node="` + node + `",remote_cluster="c2"} 1`
		s.eventually(t, contains(path), inPod("c1", "client", "curl", "-s", "-m", "3", at+"/metrics")...)
		s.eventually(t, contains("404"), inPod("c1", "client", "curl", "-s", "-m", "3", "-o", "/dev/null", "-w", "%{http_code}", at+"/status")...)
	}
	if !seen["c1n1"] || !seen["c1n2"] {
		t.Errorf("agents of c1:\n%s", pods)
	}
}
