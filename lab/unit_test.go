package lab

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"hawser.dev/hawser/lab/workload"
)

var update = flag.Bool("update", false, "rewrite goldens")

func TestSetRecipients(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, have, want string }{
		{"plain, with a comment", "spec:\n  clusters:\n  - name: a # first\n    recipient: age1old # whose\n    podCIDRs: []\n",
			"spec:\n  clusters:\n  - name: a # first\n    recipient: age1a # whose\n    podCIDRs: []\n"},
		{"quoted", "spec:\n  clusters:\n  - name: a\n    recipient: \"age1old\"\n", "spec:\n  clusters:\n  - name: a\n    recipient: age1a\n"},
		{"missing", "spec:\n  clusters:\n  - name: a\n    podCIDRs: []\n  - name: b\n    recipient: x\n",
			"spec:\n  clusters:\n  - name: a\n    recipient: age1a\n    podCIDRs: []\n  - name: b\n    recipient: age1b\n"},
		{"name is not first", "spec:\n  clusters:\n  -   podCIDRs: []\n      name: a\n",
			"spec:\n  clusters:\n  -   podCIDRs: []\n      name: a\n      recipient: age1a\n"},
		{"flow", "spec: {clusters: [{name: a, podCIDRs: []}, {name: 'b', recipient: 'age1old'}]}\n",
			"spec: {clusters: [{name: a, recipient: age1a, podCIDRs: []}, {name: 'b', recipient: age1b}]}\n"},
		{"characters, not bytes", "spec: {clusters: [{name: a, x: é, recipient: old, y: ü}]}\n",
			"spec: {clusters: [{name: a, x: é, recipient: age1a, y: ü}]}\n"},
		{"no clusters", "spec: {}\n", "spec: {}\n"},
	}
	recipients := map[string]string{"a": "age1a", "b": "age1b"}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := setRecipients([]byte(tt.have), recipients)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := setRecipients([]byte("spec:\n  clusters:\n  - name: a\n    recipient: |\n      age1\n"), recipients); err == nil {
		t.Error("a block scalar was edited wrongly without an error")
	}
}

func TestNodePrefix(t *testing.T) {
	t.Parallel()
	tests := []struct {
		cidr string
		k    int
		want string
	}{
		{"10.7.0.0/16", 0, "10.7.0.0/24"}, {"10.7.0.0/16", 255, "10.7.255.0/24"}, {"10.7.0.0/16", 256, "error"},
		{"10.0.0.0/8", 300, "10.1.44.0/24"}, {"10.7.0.0/22", 3, "10.7.0.192/26"}, {"10.7.0.0/22", 16, "error"},
		{"10.7.0.0/31", 0, "error"}, {"fd00::/48", 1, "fd00::1:0/112"}, {"fd00::/112", 2, "fd00::2000/116"},
	}
	for _, tt := range tests {
		got, err := nodePrefix(netip.MustParsePrefix(tt.cidr), tt.k)
		text := got.String()
		if err != nil {
			text = "error"
		}
		if text != tt.want {
			t.Errorf("node %d of %s: %s (%v), want %s", tt.k, tt.cidr, text, err, tt.want)
		}
	}
}

func TestFree(t *testing.T) {
	t.Parallel()
	a := netip.MustParseAddr
	prefix := netip.MustParsePrefix("10.0.0.0/29")
	taken := map[netip.Addr]bool{a("10.0.0.2"): true, a("10.0.0.3"): true}
	remembered := map[netip.Addr]bool{a("10.0.0.4"): true, a("10.0.0.5"): true, a("10.0.0.6"): true}
	if got, err := freeAddr(prefix, 2, taken, map[netip.Addr]bool{a("10.0.0.4"): true}); err != nil || got != a("10.0.0.5") {
		t.Errorf("got %s, %v; want 10.0.0.5, which has no previous owner", got, err)
	}
	if got, err := freeAddr(prefix, 2, taken, remembered); err != nil || got != a("10.0.0.4") {
		t.Errorf("got %s, %v; want 10.0.0.4: remembered addresses may be reused, the broadcast address not", got, err)
	}
	for n := range remembered {
		taken[n] = true
	}
	if got, err := freeAddr(prefix, 2, taken); err == nil {
		t.Errorf("got %s of a full prefix", got)
	}
}

func TestLANAvoidsTheTopology(t *testing.T) {
	t.Parallel()
	text := "spec:\n  clusters:\n  - name: a\n    podCIDRs: [172.16.0.0/14]\n    gateways: [{name: g, node: n, endpoints: [192.168.1.1]}]\n"
	parsed, err := parseTopology([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if lan, err := chooseLAN(parsed); err != nil || lan.String() != "172.31.0.0/16" {
		t.Errorf("%s, %v; want 172.31.0.0/16", lan, err)
	}
}

// TestGatewayChanges: a node stays when its gateway leaves, with its card and
// its address until another gateway has it; pods stay where they are.
func TestGatewayChanges(t *testing.T) {
	t.Parallel()
	s := newState()
	assign := func(gateways string) string {
		t.Helper()
		top, err := parseTopology([]byte("spec:\n  clusters:\n  - {name: a, podCIDRs: [10.7.0.0/16], gateways: [" + gateways + "]}\n" +
			"  - {name: b, gateways: [{name: z, node: b-z, endpoints: [203.0.113.9]}]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		w, err := plan(top, nil, 1, s)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, n := range w.nodesOf("a") {
			out = append(out, fmt.Sprintf("%s %t %t %v %v", n.name, n.gateway, n.hasWAN, n.wan, n.lan))
		}
		for _, p := range w.pods() {
			if p.cluster == "a" {
				out = append(out, p.Name+" on "+p.node)
			}
		}
		return strings.Join(out, "\n")
	}
	const x, y = "{name: x, node: a-x, endpoints: [203.0.113.1]}", "{name: y, node: a-y, endpoints: [203.0.113.2]}"
	steps := []struct{ name, gateways, want string }{
		{"two", x + "," + y, "a-x true true [203.0.113.1] [172.18.0.2]\na-y true true [203.0.113.2] [172.18.0.3]\n" +
			"a-w1 false false [] [172.18.0.4]\nclient on a-w1"},
		{"y leaves", x, "a-x true true [203.0.113.1] [172.18.0.2]\na-w1 false false [] [172.18.0.4]\n" +
			"a-y false true [203.0.113.2] [172.18.0.3]\nclient on a-w1"},
		{"the worker takes its address", x + ", {name: y, node: a-w1, endpoints: [203.0.113.2]}",
			"a-x true true [203.0.113.1] [172.18.0.2]\na-w1 true true [203.0.113.2] [172.18.0.4]\n" +
				"a-y false true [] [172.18.0.3]\nclient on a-w1"},
		{"unchanged", x + "," + y, "a-x true true [203.0.113.1] [172.18.0.2]\na-y true true [203.0.113.2] [172.18.0.3]\n" +
			"a-w1 false true [] [172.18.0.4]\nclient on a-w1"},
	}
	for _, step := range steps {
		if got := assign(step.gateways); got != step.want {
			t.Errorf("%s (-want +got):\n%s", step.name, cmp.Diff(step.want, got))
		}
	}
}

// TestPlan reads a topology and manifests, and compares the assignment of pods and addresses, and the
// nftables rules of one node, with the golden file.
func TestPlan(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/plan/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			top, sets, want := inputs(t, archive)
			s := newState()
			got := planText(t, top, sets, s)
			if again := planText(t, top, sets, s); again != got {
				t.Errorf("a second plan moved something (-first +second):\n%s", cmp.Diff(got, again))
			}
			if *update {
				archive.Files[len(archive.Files)-1].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// inputs reads clusterset.yaml, then CLUSTER.yaml files, then want.
func inputs(t *testing.T, archive *txtar.Archive) (topology, map[string]*workload.Set, string) {
	t.Helper()
	var top topology
	var err error
	sets := map[string]*workload.Set{}
	want := ""
	for _, file := range archive.Files {
		switch file.Name {
		case "clusterset.yaml":
			if top, err = parseTopology(file.Data); err != nil {
				t.Fatal(err)
			}
		case "want":
			want = string(file.Data)
		default:
			objects, _, err := workload.Parse(file.Name, file.Data)
			if err != nil {
				t.Fatal(err)
			}
			set := &workload.Set{}
			if err := set.Apply(objects); err != nil {
				t.Fatal(err)
			}
			sets[strings.TrimSuffix(file.Name, ".yaml")] = set
		}
	}
	return top, sets, want
}

func planText(t *testing.T, top topology, sets map[string]*workload.Set, s *state) string {
	t.Helper()
	w, err := plan(top, sets, 1, s)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, n := range w.nodes {
		fmt.Fprintf(&out, "node %s lan %v wan %v pods %v\n", n.id(), n.lan, n.wan, n.podCIDRs)
		for _, r := range nodeRoutes(w, &n) {
			fmt.Fprintf(&out, "  route %s dev %s via %s src %s\n", r.dst, r.dev, r.via, r.src)
		}
	}
	for _, p := range w.pods() {
		fmt.Fprintf(&out, "pod %s on %s at %v ready %t\n", p.id(), p.node, p.addrs, p.ready)
	}
	for _, c := range w.clusters {
		for _, svc := range c.services {
			fmt.Fprintf(&out, "service %s/%s/%s at %v with %d backends\n", c.name, svc.Namespace, svc.Name, svc.addrs, len(svc.backends))
		}
	}
	for _, problem := range w.problems {
		fmt.Fprintf(&out, "problem %s\n", problem)
	}
	out.Write(hostsFile(w))
	out.WriteString(rules(&w.nodes[0], w.clusters[0].services))
	return out.String()
}

// TestRecreatedPodsKeepAddresses tests that a pod scaled down and up again keeps its address unless
// another pod got it.
func TestRecreatedPodsKeepAddresses(t *testing.T) {
	t.Parallel()
	top, err := parseTopology([]byte("spec:\n  clusters:\n  - {name: a, podCIDRs: [10.7.0.0/16], gateways: [{name: g, node: g}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	set := &workload.Set{}
	objects, _, err := workload.Parse("f", []byte(`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {replicas: 3,
 selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: []}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := set.Apply(objects); err != nil {
		t.Fatal(err)
	}
	s := newState()
	at := func(replicas int32) map[string]netip.Addr {
		if err := set.Scale(objects[0].Key, replicas); err != nil {
			t.Fatal(err)
		}
		w, err := plan(top, map[string]*workload.Set{"a": set}, 1, s)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]netip.Addr{}
		for _, p := range w.pods() {
			out[p.ID()] = p.addrs[0]
		}
		return out
	}
	first := at(3)
	at(1)
	if diff := cmp.Diff(first, at(3), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("scaled to 1 and back (-want +got):\n%s", diff)
	}
}

func TestNodeDirs(t *testing.T) {
	t.Parallel()
	s := newState()
	have := []string{s.nodeDir("a", "worker"), s.nodeDir("b", "worker"), s.nodeDir("a", "worker"), s.nodeDir("b", "gw")}
	if diff := cmp.Diff([]string{"worker", "b.worker", "worker", "gw"}, have); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestServices: fields of Services and pods that change endpoints and addresses have the effect that
// they have in Kubernetes.
func TestServices(t *testing.T) {
	t.Parallel()
	top, err := parseTopology([]byte("spec:\n  clusters:\n  - {name: a, podCIDRs: [10.7.0.0/16], serviceCIDRs: [10.77.0.0/16], gateways: [{name: g, node: a-g, endpoints: [203.0.113.1]}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	const port = "ports: [{name: http, port: 80, appProtocol: http}]"
	objects, _, err := workload.Parse("f.yaml", []byte(`
{apiVersion: v1, kind: Pod, metadata: {name: up, labels: {app: w}}, spec: {nodeSelector: {kubernetes.io/hostname: a-w2}, containers: []}}
---
{apiVersion: v1, kind: Pod, metadata: {name: starting, labels: {app: w}, annotations: {hawser.dev/lab-ready: "false"}}, spec: {nodeName: a-g, containers: []}}
---
{apiVersion: v1, kind: Pod, metadata: {name: nowhere}, spec: {nodeSelector: {disk: fast}, containers: []}}
---
{apiVersion: v1, kind: Service, metadata: {name: all}, spec: {selector: {app: w}, publishNotReadyAddresses: true, sessionAffinity: ClientIP, `+port+`}}
---
{apiVersion: v1, kind: Service, metadata: {name: local}, spec: {selector: {app: w}, internalTrafficPolicy: Local, `+port+`}}
---
{apiVersion: v1, kind: Service, metadata: {name: plain}, spec: {selector: {app: w}, `+port+`}}
---
{apiVersion: v1, kind: Service, metadata: {name: elsewhere}, spec: {type: ExternalName, externalName: www.example.org}}
---
{apiVersion: v1, kind: Service, metadata: {name: dual}, spec: {ipFamilyPolicy: RequireDualStack, `+port+`}}
---
{apiVersion: v1, kind: Service, metadata: {name: six}, spec: {ipFamilies: [IPv6], `+port+`}}
`))
	if err != nil {
		t.Fatal(err)
	}
	set := &workload.Set{}
	if err := set.Apply(objects); err != nil {
		t.Fatal(err)
	}
	w, err := plan(top, map[string]*workload.Set{"a": set}, 2, newState())
	if err != nil {
		t.Fatal(err)
	}
	problems := strings.Join(w.problems, "\n")
	for _, want := range []string{"pod default/nowhere: no node of cluster a has the labels of its nodeSelector: disk=fast", "default/dual: the cluster's service CIDRs", "default/six: the cluster's service CIDRs"} {
		if !strings.Contains(problems, want) {
			t.Errorf("no %q in\n%s", want, problems)
		}
	}
	files, err := facts(w, w.clusters[0], nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	slices := string(files["endpointslices.yaml"])
	for _, want := range []string{"ready: true\n    serving: false", "ready: false\n    serving: false", "appProtocol: http", "nodeName: a-w2"} {
		if !strings.Contains(slices, want) {
			t.Errorf("no %q in\n%s", want, slices)
		}
	}
	address := map[string]string{}
	for _, s := range w.clusters[0].services {
		if len(s.addrs) > 0 {
			address[s.Name] = s.addrs[0].String()
		}
	}
	if address["elsewhere"] != "" {
		t.Errorf("a Service of type ExternalName has address %s", address["elsewhere"])
	}
	for node, wants := range map[string][]string{
		"a-w2": {address["all"] + " tcp dport 80 dnat to jhash ip saddr mod 2 map {", address["local"] + " tcp dport 80 dnat to numgen random mod 1 map {", address["plain"] + " tcp dport 80 dnat to numgen random mod 1 map {"},
		"a-g":  {address["all"] + " tcp dport 80 dnat to jhash ip saddr mod 2 map {", address["local"] + " tcp dport 80 drop", address["plain"] + " tcp dport 80 dnat to numgen random mod 1 map {"},
	} {
		text := rules(w.node("a/"+node), w.clusters[0].services)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("node %s: no %q in\n%s", node, want, text)
			}
		}
	}
}
