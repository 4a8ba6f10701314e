//go:build kube

package kube

import (
	"fmt"
	"strings"
	"testing"
)

const leavingName = "leaving.dynamic-leaving.svc.clusterset.local"

// TestNamespaceDeleted deletes the namespace of an export in the importing cluster, then in the
// exporting one. Hawser's objects do not block the deletion and none is left. The export works again
// after the namespace returns, and connections to other exports are not affected.
func TestNamespaceDeleted(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	target := s.awaitAddresses(t, "c1", "client", "traffic.sample.svc.clusterset.local", 1)[0] + ":7000"
	kept := s.startStream(t, s.podNetwork(t, "c1", "client"), "tcp", "--count", "20", "--patience", "60s", "--open", "60s", target)
	pod := strings.TrimSpace(s.kubectl(t, "c2", "-n", "sample", "get", "pod", "whereami-0", "-o", "jsonpath={.status.podIP}"))
	for _, c := range s.clusters {
		t.Cleanup(func() {
			s.kubectl(t, c, "delete", "namespace", "dynamic-leaving", "--ignore-not-found", "--wait=false")
		})
	}
	importing := "apiVersion: v1\nkind: Namespace\nmetadata: {name: dynamic-leaving}\n"
	exporting := importing + fmt.Sprintf(leavingExport, pod)
	addrs := []string{"kubectl", "--context", "c1", "-n", "dynamic-leaving", "get", "serviceimport", "leaving", "-o", "jsonpath={.spec.ips}"}
	gone := []string{"sh", "-c", "kubectl --context c1 -n dynamic-leaving get serviceimport leaving 2>&1; true"}

	s.apply(t, "c1", importing)
	s.apply(t, "c2", exporting)
	s.awaitAnswer(t, "c1", "client", leavingName, fromCluster("c2"))
	vip := s.eventually(t, contains("243.0."), addrs...)

	s.kubectl(t, "c1", "delete", "namespace", "dynamic-leaving", "--timeout="+conditionTimeout.String())
	s.eventually(t, contains("not found"), gone...)
	s.apply(t, "c1", importing)
	if again := s.eventually(t, contains("243.0."), addrs...); again != vip {
		t.Errorf("clusterset IP was %s, is %s", vip, again)
	}
	s.awaitAnswer(t, "c1", "client", leavingName, fromCluster("c2"))

	s.kubectl(t, "c2", "delete", "namespace", "dynamic-leaving", "--timeout="+conditionTimeout.String())
	s.eventually(t, contains("NXDOMAIN"), inPod("c1", "client", "dig", leavingName)...)
	s.eventually(t, contains("not found"), gone...)
	s.apply(t, "c2", exporting)
	s.awaitAnswer(t, "c1", "client", leavingName, fromCluster("c2"))
	s.checkSurvivors(t, kept())
}

// leavingExport is a Service without a selector, its endpoint, and its export.
const leavingExport = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: leaving, namespace: dynamic-leaving, labels: {kubernetes.io/service-name: leaving}}
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints:
- {addresses: [%s], conditions: {ready: true}}
---
apiVersion: v1
kind: Service
metadata: {name: leaving, namespace: dynamic-leaving}
spec:
  ports: [{name: http, port: 80}]
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: leaving, namespace: dynamic-leaving}
`
