//go:build kube

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/status"
)

// TestDeclaredBecomesDynamic removes an export from the topology; its ServiceExport stays. The
// clusterset IP does not change. Pods of both clusters resolve the name and connect meanwhile, without
// a failure.
func TestDeclaredBecomesDynamic(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	const namespace, name = "dynamic-becomes", "becomes.dynamic-becomes.svc.clusterset.local"
	t.Cleanup(func() {
		s.reset(t)
		for _, c := range s.clusters {
			s.kubectl(t, c, "delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
		}
	})
	pod := strings.TrimSpace(s.kubectl(t, "c2", "-n", "sample", "get", "pod", "whereami-0", "-o", "jsonpath={.status.podIP}"))
	for _, c := range s.clusters {
		s.apply(t, c, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}\n")
	}
	const exports = "  exports:\n"
	const declared = "  - name: becomes\n    namespace: " + namespace + "\n    clusters: [c2]\n    ports: [{name: http, port: 80, protocol: TCP}]\n"
	s.change(t, exports, exports+declared)
	s.awaitExportSource(t, "topology", namespace+"/becomes") // the ServiceExport alone would do, and has another address then
	// Another manager owns the ServiceExport before the topology drops it.
	s.apply(t, "c2", strings.ReplaceAll(fmt.Sprintf(leavingExport, pod), "leaving", "becomes"))
	s.awaitAnswer(t, "c1", "client", name, fromCluster("c2"))
	s.awaitAnswer(t, "c2", "client", name, fromCluster("c2"))
	addresses := map[string]string{}
	for _, c := range s.clusters {
		addresses[c] = s.awaitAddresses(t, c, "client", name, 1)[0]
	}
	imported := func() {
		t.Helper()
		for c, address := range addresses {
			s.eventually(t, contains(address), "kubectl", "--context", c, "-n", namespace, "get", "serviceimport", "becomes", "-o", "jsonpath={.spec.ips}")
		}
	}
	imported()

	clients := [][2]string{{"c1", "client"}, {"c1", "near"}, {"c2", "client"}}
	asked := make(chan string)
	for _, at := range clients {
		t.Cleanup(func() { s.must(t, "", inPod(at[0], at[1], "touch", "/tmp/stop")...) })
		go func() {
			out, err := s.try(context.Background(), "", "", inPod(at[0], at[1], "sh", "-c", askUntilStopped, name, addresses[at[0]])...)
			asked <- fmt.Sprintf("%s/%s: %s %v", at[0], at[1], out, err)
		}()
	}
	s.change(t, exports+declared, exports)
	s.awaitExportSource(t, "clusters", namespace+"/becomes")
	imported()
	for _, at := range clients {
		s.must(t, "", inPod(at[0], at[1], "touch", "/tmp/stop")...)
	}
	for range clients {
		out := <-asked
		t.Log(out)
		if !strings.HasSuffix(out, "none failed\n <nil>") {
			t.Error("a request failed")
		}
	}
}

// askUntilStopped resolves a name ($0), which must have the address ($1), and connects to it by
// name, until /tmp/stop exists.
const askUntilStopped = `rm -f /tmp/stop; failed=0
until [ -e /tmp/stop ]; do
  asked=$((asked + 1))
  at=$(dig +short +tries=1 "$0")
  [ "$at" = "$1" ] || { failed=$((failed + 1)); echo "$asked: $at"; }
  curl -sS -o /dev/null -m 5 "http://$0/" || failed=$((failed + 1))
done
[ $failed = 0 ] && failed=none
echo "$asked times, $failed failed"`

// awaitExportSource waits until the agents of all nodes report the source of an export, namespace/name:
// topology or clusters.
func (s *clusterset) awaitExportSource(t *testing.T, where, name string) {
	t.Helper()
	for _, node := range []string{"c1n1", "c1n2", "c2n1", "c2n2"} {
		s.eventually(t, func(output string) bool {
			var st status.Status
			if err := json.Unmarshal([]byte(output), &st); err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(st.Exports, func(e status.Export) bool {
				return e.Namespace+"/"+e.Name == name && e.Dynamic == (where == "clusters")
			})
		}, append(s.agentCommand(node), "-o", "json")...)
	}
}
