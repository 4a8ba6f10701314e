//go:build kube

package kube

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestFixedAddress: a pod of Kube-OVN with a fixed address is deleted and comes back on
// another node. At its first try it reaches the other cluster, from the same port too, so
// that gateways must unlearn where the flow went; and it is reached as an export.
func TestFixedAddress(t *testing.T) {
	needKubeOVN(t)
	s := needSet(t, same)
	namespace := s.someNamespace(t)
	pod, name := namespace+"/fixed", "fixed."+namespace+".svc.clusterset.local"
	s.apply(t, "c1", fmt.Sprintf(fixedService, namespace))
	s.must(t, export("fixed"), "kubectl", "--context", "c1", "-n", namespace, "apply", "--server-side", "-f", "-")
	for _, node := range []string{"c1n1", "c1n2", "c1n1"} {
		s.kubectl(t, "c1", "-n", namespace, "delete", "pod", "fixed", "--ignore-not-found")
		s.apply(t, "c1", fmt.Sprintf(fixedPod, namespace, node))
		s.kubectl(t, "c1", "-n", namespace, "wait", "--for=condition=Ready", "pod", "fixed", "--timeout="+limit.String())
		if ip := s.kubectl(t, "c1", "-n", namespace, "get", "pod", "fixed", "-o", "jsonpath={.status.podIP}"); ip != "10.7.200.7" {
			t.Fatalf("the pod has %s", ip)
		}
		begun := time.Now()
		out := s.must(t, "", within("c1", pod, "curl", "-s", "-m", "10", "--local-port", "41000-41009", service)...)
		t.Logf("figure: on %s the pod has an answer %.1f s after it is ready", node, time.Since(begun).Seconds())
		if !strings.Contains(out, `"cluster":"c2"`) {
			t.Errorf("on %s the pod had %q", node, out)
		}
		for _, client := range []string{"client", "near"} {
			s.ask(t, "c2", client, name, func(a answer) bool { return a.Cluster == "c1" && a.Node == node })
		}
		t.Logf("figure: both clients had its answer %.1f s after it is ready", time.Since(begun).Seconds())
	}
}

// TestSecondSubnet: a pod in a further Subnet of Kube-OVN's default VPC reaches the other
// cluster, once the topology has its prefix.
func TestSecondSubnet(t *testing.T) {
	needKubeOVN(t)
	s := needSet(t, same)
	t.Cleanup(func() { s.reset(t) })
	namespace := s.someNamespace(t)
	t.Cleanup(func() { s.kubectl(t, "c1", "delete", "subnet", "second", "--ignore-not-found", "--wait=false") })
	s.apply(t, "c1", fmt.Sprintf(secondSubnet, namespace))
	s.change(t, "- name: c1\n    podCIDRs: [10.7.0.0/16]", "- name: c1\n    podCIDRs: [10.7.0.0/16, 10.201.0.0/24]")
	for _, node := range []string{"c1n1", "c1n2"} {
		s.apply(t, "c1", fmt.Sprintf(subnetPod, namespace, node))
		s.kubectl(t, "c1", "-n", namespace, "wait", "--for=condition=Ready", "pod", "on-"+node, "--timeout="+limit.String())
		if ip := s.kubectl(t, "c1", "-n", namespace, "get", "pod", "on-"+node, "-o", "jsonpath={.status.podIP}"); !strings.HasPrefix(ip, "10.201.0.") {
			t.Fatalf("the pod has %s", ip)
		}
		s.ask(t, "c1", namespace+"/on-"+node, service, from("c2"))
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
  containers:
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

const secondSubnet = `apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: second}
spec:
  vpc: ovn-cluster
  protocol: IPv4
  cidrBlock: 10.201.0.0/24
  gateway: 10.201.0.1
  gatewayType: distributed
  natOutgoing: true
  namespaces: [%s]
`

const subnetPod = `apiVersion: v1
kind: Pod
metadata: {name: on-%[2]s, namespace: %[1]s, annotations: {ovn.kubernetes.io/logical_switch: second}}
spec:
  nodeSelector: {kubernetes.io/hostname: %[2]s}
  terminationGracePeriodSeconds: 0
  containers:
  - {name: tools, image: "hawser/tools:lab", command: [sleep, infinity]}
`
