package facts

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/nodeagent/model"
)

const nodeAndPods = `apiVersion: v1
kind: Node
metadata: {name: g1-w1}
spec: {podCIDRs: [10.7.1.0/24, "fd07:1::/64"]}
status:
  addresses:
  - {type: Hostname, address: g1-w1}
  - {type: InternalIP, address: 203.0.113.12}
  - {type: InternalIP, address: 203.0.113.99}
  - {type: InternalIP, address: "2001:db8::12"}
---
# a list, as kubectl prints it
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: web-1, namespace: sample, labels: {app: web, since: 2026-01-02}}
  spec: {nodeName: g1-w1}
  status: {phase: Running, podIP: 10.7.1.5, podIPs: [{ip: 10.7.1.5}, {ip: "fd07:1::5"}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: done, namespace: sample}
  status: {phase: Succeeded, podIP: 10.7.1.6}
- apiVersion: v1
  kind: Pod
  metadata: {name: waiting, namespace: sample}
  status: {phase: Pending}
- apiVersion: v1
  kind: Pod
  metadata: {name: agent, namespace: hawser-system}
  spec: {nodeName: g1-w1, hostNetwork: true}
  status: {phase: Running, podIP: 203.0.113.12}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web}
`

const serviceAndSlices = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: sample}
spec:
  clusterIP: 10.77.0.9
  clusterIPs: [10.77.0.9]
  ports:
  - {name: dns, port: 53, protocol: UDP}
  - {name: http, port: 80}
  - {name: sctp, port: 80, protocol: SCTP}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: sample}
spec: {clusterIP: None, clusterIPs: [None], ports: [{port: 5432}]}
---
apiVersion: v1
kind: Service
metadata: {name: elsewhere, namespace: sample}
spec: {type: ExternalName, externalName: example.org}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-v4, namespace: sample, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports:
- {name: http, port: 8080, protocol: TCP}
- {name: dns, port: 5353, protocol: UDP}
- {name: other, port: 1, protocol: TCP}
endpoints:
- {addresses: [10.7.1.5], nodeName: g1-w1, targetRef: {kind: Pod, name: web-1, namespace: sample}, conditions: {ready: true}}
- {addresses: [10.7.1.7], conditions: {ready: false}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-v6, namespace: sample, labels: {kubernetes.io/service-name: web}}
addressType: IPv6
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints:
- {addresses: ["fd07:1::5"], targetRef: {kind: Pod, name: web-1, namespace: sample}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: sample, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: "", port: 5432}]
endpoints:
- {addresses: [10.7.1.8], hostname: db-0, targetRef: {kind: Pod, name: db-0}}
`

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

func wantFacts() model.Facts {
	return model.Facts{
		Nodes: []model.Node{{
			Name: "g1-w1", Addrs: addrs("203.0.113.12", "2001:db8::12"),
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.7.1.0/24"), netip.MustParsePrefix("fd07:1::/64")},
		}},
		Pods: []model.Pod{
			{Namespace: "hawser-system", Name: "agent", Node: "g1-w1", Addrs: addrs("203.0.113.12"), HostNetwork: true},
			{
				Namespace: "sample", Name: "web-1", Node: "g1-w1", Addrs: addrs("10.7.1.5", "fd07:1::5"),
				Labels: map[string]string{"app": "web", "since": "2026-01-02"},
			},
		},
		Services: []model.Service{
			{
				Namespace: "sample", Name: "db", Ports: []model.ServicePort{{Protocol: "TCP", Port: 5432}},
				Endpoints: []model.Endpoint{
					{Addrs: addrs("10.7.1.8"), Hostname: "db-0", Pod: "db-0", Ready: true, Ports: map[string]int{"TCP/5432": 5432}},
				},
			},
			{Namespace: "sample", Name: "elsewhere", ExternalName: true},
			{
				Namespace: "sample", Name: "web", ClusterIPs: addrs("10.77.0.9"),
				Unsupported: []string{"port 80/SCTP: only TCP and UDP are supported"},
				Ports:       []model.ServicePort{{Name: "dns", Protocol: "UDP", Port: 53}, {Name: "http", Protocol: "TCP", Port: 80}},
				Endpoints: []model.Endpoint{
					{Addrs: addrs("10.7.1.7"), Ports: map[string]int{"TCP/80": 8080, "UDP/53": 5353}},
					{
						Addrs: addrs("10.7.1.5", "fd07:1::5"), Pod: "web-1", Node: "g1-w1", Ready: true,
						Ports: map[string]int{"TCP/80": 8080, "UDP/53": 5353},
					},
				},
			},
		},
	}
}

var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func decodeAll(t *testing.T, texts ...string) Objects {
	t.Helper()
	var all Objects
	for _, text := range texts {
		objects, err := Decode("f.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		all.add(objects)
	}
	return all
}

func TestFromObjects(t *testing.T) {
	t.Parallel()
	all := decodeAll(t, nodeAndPods, serviceAndSlices)
	if diff := cmp.Diff(wantFacts(), FromObjects(all), byValue); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		r.Shuffle(len(all.Pods), func(i, j int) { all.Pods[i], all.Pods[j] = all.Pods[j], all.Pods[i] })
		r.Shuffle(len(all.Services), func(i, j int) { all.Services[i], all.Services[j] = all.Services[j], all.Services[i] })
		slices := all.EndpointSlices
		r.Shuffle(len(slices), func(i, j int) { slices[i], slices[j] = slices[j], slices[i] })
		if diff := cmp.Diff(wantFacts(), FromObjects(all), byValue); diff != "" {
			t.Fatalf("order %d changes the facts (-want +got):\n%s", seed, diff)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		line       int
		part       string
	}{
		{"syntax", "apiVersion: v1\nkind: Pod\nspec: x: y\n", 3, "mapping values"},
		{"second document", "apiVersion: v1\nkind: Pod\n---\nkind: [\n", 4, "did not find"},
		{"not an object", "\n- a\n", 2, "mapping"},
		{"no kind", "apiVersion: v1\nmetadata: {}\n", 1, "kind"},
		{"type deep inside", "apiVersion: v1\nkind: Service\nspec:\n  ports:\n  - name: a\n    port: many\n", 6, "port"},
		{"type in a list", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  spec:\n    hostNetwork: 3\n", 7, "hostNetwork"},
		{"items", "apiVersion: v1\nkind: List\nitems: 3\n", 3, "items"},
		{"duplicate key", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nmetadata: {name: b}\n", 4, "already defined"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Decode("f.yaml", []byte(tt.text))
			var found diag.Diagnostic
			if !errors.As(err, &found) {
				t.Fatalf("got %v, want a diagnostic", err)
			}
			if found.Pos.File != "f.yaml" || found.Pos.Line != tt.line || !strings.Contains(found.Summary, tt.part) {
				t.Errorf("got %s, want line %d and %q", found.Error(), tt.line, tt.part)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(nodeAndPods)
	f.Add(serviceAndSlices)
	f.Add("a: &a [*a]\n")
	f.Add("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: [{}]}]\n")
	f.Add("apiVersion: v1\nkind: Pod\nmetadata: {name: &x a, namespace: *x}\nstatus: {podIP: ::ffff:1.2.3.4}\n")
	f.Fuzz(func(t *testing.T, text string) {
		objects, err := Decode("f.yaml", []byte(text))
		var found diag.Diagnostic
		if err != nil && (!errors.As(err, &found) || found.Pos.Line < 1) {
			t.Fatalf("error without a line: %v", err)
		}
		if first, again := FromObjects(objects), FromObjects(objects); !reflect.DeepEqual(first, again) {
			t.Fatal("two runs differ")
		}
	})
}
