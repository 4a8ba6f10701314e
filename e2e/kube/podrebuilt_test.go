//go:build kube

package kube

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestRebuilt exports a Deployment with kubectl. Pods of the other cluster reach it by name, from a
// gateway's node and from another node. Then its pod is deleted: the new pod, with another address, is
// reached by the same name. The documentation recommends this test to users of Kube-OVN.
func TestRebuilt(t *testing.T) {
	t.Run("flat over vxlan", func(t *testing.T) {
		s := needClusterset(t, labOptions{flat: true, pods: "10.16.0.0/16,11.16.0.0/16", proxy: "nftables"})
		t.Cleanup(func() { s.reset(t) })
		s.change(t, "egressIPs: 8", "egressIPs: 8\n  tunnel: {driver: vxlan}")
		s.checkRebuilt(t, "vxlan")
	})
	t.Run("same prefixes over wireguard", func(t *testing.T) { needClusterset(t, samePrefixes).checkRebuilt(t, "wireguard") })
}

func (s *clusterset) checkRebuilt(t *testing.T, driver string) {
	for _, c := range s.clusters {
		s.eventually(t, regexp.MustCompile(`link .*: `+driver+`.*, connected`).MatchString, s.agentCommand(c+"n1")...)
	}
	namespace := s.newNamespace(t)
	s.apply(t, "c2", fmt.Sprintf(webDeployment, namespace))
	s.must(t, export("web"), "kubectl", "--context", "c2", "-n", namespace, "apply", "--server-side", "-f", "-")
	name := "web." + namespace + ".svc.clusterset.local"
	pods := func() []string {
		return strings.Fields(s.eventually(t, contains("web-"), "kubectl", "--context", "c2", "-n", namespace, "get", "pods", "-l", "app=web",
			"--field-selector", "status.phase=Running", "-o", "jsonpath={.items[*].metadata.name} {.items[*].status.podIP}"))
	}
	reached := func(pod string) {
		for _, client := range []string{"client", "near"} {
			a := s.awaitAnswer(t, "c1", client, name, func(a answer) bool { return a.Cluster == "c2" && a.Pod == pod })
			if own := s.podAddress(t, "c1", client, s.shape.addressFamilies()[0]); (a.Client == own) != s.shape.flat {
				t.Errorf("%s with %s was seen as %s", client, own, a.Client)
			}
		}
	}
	first := pods()
	reached(first[0])
	start := time.Now()
	s.kubectl(t, "c2", "-n", namespace, "delete", "pod", first[0])
	second := pods()
	if len(second) != 2 || second[0] == first[0] || second[1] == first[1] {
		t.Fatalf("pod and address were %v, are %v", first, second)
	}
	reached(second[0])
	t.Logf("figure: both clients had an answer of the pod that is rebuilt %.1f s after the deletion began", time.Since(start).Seconds())
}

const webDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: %[1]s}
spec:
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: whereami
        image: whereami:lab
        args: ["80"]
        env:
        - {name: CLUSTER, value: c2}
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        readinessProbe:
          tcpSocket: {port: 80}
          periodSeconds: 1
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: %[1]s}
spec:
  selector: {app: web}
  ports:
  - {name: http, port: 80}
`
