package facts

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/model"
)

const oneService = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: sample}
spec: {clusterIP: 10.77.0.9, ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]}
---
`

// TestConditions checks absent and present conditions against the behaviour of kube-proxy.
func TestConditions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		conditions         string
		ready, terminating bool
	}{
		{"{}", true, false},
		{"{ready: true}", true, false},
		{"{ready: false}", false, false},
		{"{ready: false, serving: true}", false, false},
		{"{ready: false, serving: true, terminating: true}", false, true},
		{"{ready: false, serving: false, terminating: true}", false, false},
		{"{ready: false, terminating: true}", false, true},
		{"{terminating: true}", true, false},
		{"{ready: true, serving: true, terminating: true}", true, false}, // publishNotReadyAddresses
		{"{ready: true, serving: false}", true, false},                   // the same
	}
	for _, tt := range tests {
		have := FromObjects(decodeAll(t, oneService+`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: sample, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.7.1.5], conditions: `+tt.conditions+`}]
`)).Services[0].Endpoints[0]
		if have.Ready != tt.ready || have.Terminating != tt.terminating {
			t.Errorf("%s: ready %t, terminating %t", tt.conditions, have.Ready, have.Terminating)
		}
	}
}

// TestSlicesOfOneService joins the slices of a Service. A UDP and a TCP port have one number. The
// target of a port differs from pod to pod. One endpoint is in two slices. A new pod has the name
// of the previous pod.
func TestSlicesOfOneService(t *testing.T) {
	t.Parallel()
	have := FromObjects(decodeAll(t, oneService+`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: sample, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: dns, port: 5353, protocol: UDP}, {name: dns-tcp, port: 5354, protocol: TCP}]
endpoints:
- {addresses: [10.7.1.5], targetRef: {kind: Pod, name: web-0}, conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [10.7.1.6], conditions: {ready: true}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-2, namespace: sample, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 9090}]
endpoints:
- {addresses: [10.7.1.7], targetRef: {kind: Pod, name: web-0}, conditions: {ready: true}}
- {addresses: [10.7.1.8], targetRef: {kind: Pod, name: web-1}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-3, namespace: sample, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.7.1.6], conditions: {ready: false}}
`)).Services[0].Endpoints
	slices.SortFunc(have, func(a, b model.Endpoint) int { return a.Addrs[0].Compare(b.Addrs[0]) })
	all := map[string]int{"TCP/80": 8080, "UDP/53": 5353, "TCP/53": 5354}
	want := []model.Endpoint{
		{Addrs: addrs("10.7.1.5"), Pod: "web-0", Terminating: true, Ports: all},
		{Addrs: addrs("10.7.1.6"), Ready: true, Ports: all},
		{Addrs: addrs("10.7.1.7"), Pod: "web-0", Ready: true, Ports: map[string]int{"TCP/80": 9090}},
		{Addrs: addrs("10.7.1.8"), Pod: "web-1", Ready: true, Ports: map[string]int{"TCP/80": 9090}},
	}
	if diff := cmp.Diff(want, have, byValue); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
}

// TestUnsupportedIsNamed checks that the facts name unsupported parts of Services and slices.
func TestUnsupportedIsNamed(t *testing.T) {
	t.Parallel()
	have := FromObjects(decodeAll(t, `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: sample}
spec: {clusterIP: 10.77.0.9, internalTrafficPolicy: Local, ports: [{name: http, port: 80}, {name: sig, port: 38412, protocol: SCTP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: sample, labels: {kubernetes.io/service-name: web}}
addressType: FQDN
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [db.example.org]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-2, namespace: sample, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http}]
endpoints: [{addresses: [10.7.1.5]}]
`)).Services[0]
	want := []string{
		"EndpointSlice web-1 has names instead of addresses (addressType FQDN)",
		`EndpointSlice web-2 has no number for port "http"`,
		"internalTrafficPolicy Local: callers reach endpoints on all nodes",
		"port 38412/SCTP: only TCP and UDP are supported",
	}
	if diff := cmp.Diff(want, have.Unsupported); diff != "" {
		t.Errorf("unsupported (-want +got):\n%s", diff)
	}
	if len(have.Endpoints) != 1 || len(have.Endpoints[0].Ports) != 0 {
		t.Errorf("endpoints %+v", have.Endpoints)
	}
}
