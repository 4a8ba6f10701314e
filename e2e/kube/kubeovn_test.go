//go:build kube

package kube

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestFixedAddress deletes a pod of Kube-OVN with a fixed address, which restarts on another node. Its
// first connection to the other cluster works, also from the same port: gateways must forget the former
// node of the flow. The pod is reached as an export.
func TestFixedAddress(t *testing.T) {
	needKubeOVN(t)
	s := needClusterset(t, samePrefixes)
	namespace := s.newNamespace(t)
	pod, name := namespace+"/fixed", "fixed."+namespace+".svc.clusterset.local"
	s.apply(t, "c1", fmt.Sprintf(fixedService, namespace))
	s.must(t, export("fixed"), "kubectl", "--context", "c1", "-n", namespace, "apply", "--server-side", "-f", "-")
	for _, node := range []string{"c1n1", "c1n2", "c1n1"} {
		s.kubectl(t, "c1", "-n", namespace, "delete", "pod", "fixed", "--ignore-not-found")
		s.apply(t, "c1", fmt.Sprintf(fixedPod, namespace, node))
		s.kubectl(t, "c1", "-n", namespace, "wait", "--for=condition=Ready", "pod", "fixed", "--timeout="+conditionTimeout.String())
		if ip := s.kubectl(t, "c1", "-n", namespace, "get", "pod", "fixed", "-o", "jsonpath={.status.podIP}"); ip != "10.7.200.7" {
			t.Fatalf("the pod has %s", ip)
		}
		start := time.Now()
		out := s.must(t, "", inPod("c1", pod, "curl", "-s", "-m", "10", "--local-port", "41000-41009", serviceName)...)
		t.Logf("figure: on %s the pod has an answer %.1f s after it is ready", node, time.Since(start).Seconds())
		if !strings.Contains(out, `"cluster":"c2"`) {
			t.Errorf("on %s the pod had %q", node, out)
		}
		for _, client := range []string{"client", "near"} {
			s.awaitAnswer(t, "c2", client, name, func(a answer) bool { return a.Cluster == "c1" && a.Node == node })
		}
		t.Logf("figure: both clients had its answer %.1f s after it is ready", time.Since(start).Seconds())
	}
}

// TestSecondSubnet tests pods in further Subnets of Kube-OVN's default VPC: they reach the other
// cluster and are reached from it, once the topology has the Subnets' prefixes. Packets of one Subnet
// leave OVN on the pod's node, packets of the other on a node without gateway.
func TestSecondSubnet(t *testing.T) {
	needKubeOVN(t)
	s := needClusterset(t, samePrefixes)
	t.Cleanup(func() { s.reset(t) })
	s.change(t, "- name: c1\n    podCIDRs: [10.7.0.0/16]", "- name: c1\n    podCIDRs: [10.7.0.0/16, 10.201.0.0/24, 10.202.0.0/24]")
	for name, of := range map[string]struct{ prefix, gateway string }{
		"distributed": {"10.201.0.", "gatewayType: distributed"},
		"centralized": {"10.202.0.", "gatewayType: centralized\n  gatewayNode: c1n2"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := s.newNamespace(t)
			t.Cleanup(func() { s.kubectl(t, "c1", "delete", "subnet", name, "--ignore-not-found", "--wait=false") })
			s.apply(t, "c1", fmt.Sprintf(furtherSubnet, name, of.prefix, of.gateway, namespace))
			for _, node := range []string{"c1n1", "c1n2"} {
				pod := "on-" + node
				s.apply(t, "c1", fmt.Sprintf(subnetPod, namespace, node, name))
				s.kubectl(t, "c1", "-n", namespace, "wait", "--for=condition=Ready", "pod", pod, "--timeout="+conditionTimeout.String())
				if ip := s.kubectl(t, "c1", "-n", namespace, "get", "pod", pod, "-o", "jsonpath={.status.podIP}"); !strings.HasPrefix(ip, of.prefix) {
					t.Fatalf("the pod has %s", ip)
				}
				s.awaitAnswer(t, "c1", namespace+"/"+pod, serviceName, fromCluster("c2"))
				s.must(t, export(pod), "kubectl", "--context", "c1", "-n", namespace, "apply", "--server-side", "-f", "-")
				for _, client := range []string{"client", "near"} {
					s.awaitAnswer(t, "c2", client, pod+"."+namespace+".svc.clusterset.local", func(a answer) bool { return a.Cluster == "c1" && a.Node == node })
				}
			}
		})
	}
}

func needKubeOVN(t *testing.T) {
	t.Helper()
	if network := os.Getenv(cniEnv); network != "kube-ovn" {
		t.Skipf("is about the network kube-ovn: %s=%q", cniEnv, network)
	}
}

const fixedService = `apiVersion: v1
kind: Service
metadata: {name: fixed, namespace: %s}
spec:
  selector: {app: fixed}
  ports:
  - {name: http, port: 80}
`

const fixedPod = `apiVersion: v1
kind: Pod
metadata:
  name: fixed
  namespace: %s
  labels: {app: fixed}
  annotations: {ovn.kubernetes.io/ip_address: 10.7.200.7}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 0
` + answering

const furtherSubnet = `apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: %[1]s}
spec:
  vpc: ovn-cluster
  protocol: IPv4
  cidrBlock: %[2]s0/24
  gateway: %[2]s1
  %[3]s
  natOutgoing: true
  namespaces: [%[4]s]
`

const subnetPod = `apiVersion: v1
kind: Service
metadata: {name: on-%[2]s, namespace: %[1]s}
spec:
  selector: {app: on-%[2]s}
  ports:
  - {name: http, port: 80}
---
apiVersion: v1
kind: Pod
metadata:
  name: on-%[2]s
  namespace: %[1]s
  labels: {app: on-%[2]s}
  annotations: {ovn.kubernetes.io/logical_switch: %[3]s, kubectl.kubernetes.io/default-container: tools}
spec:
  nodeSelector: {kubernetes.io/hostname: %[2]s}
  terminationGracePeriodSeconds: 0
` + answering

// answering is the end of the manifest of a pod that is client and server.
const answering = `  containers:
  - {name: tools, image: "hawser/tools:lab", command: [sleep, infinity]}
  - name: whereami
    image: whereami:lab
    args: ["80"]
    env:
    - {name: CLUSTER, value: c1}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    readinessProbe:
      tcpSocket: {port: 80}
      periodSeconds: 1
`
