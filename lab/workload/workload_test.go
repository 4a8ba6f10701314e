package workload

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sample = `apiVersion: v1
kind: Namespace
metadata: {name: sample}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: sample}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: x, ports: [{name: http, containerPort: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web, namespace: sample}
spec:
  replicas: 2
  serviceName: web-ss
  selector: {matchLabels: {app: ss}}
  template:
    metadata: {labels: {app: ss}}
    spec:
      containers:
      - {name: web, image: x, ports: [{containerPort: 80}, {containerPort: 53, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: sample}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}, {name: admin, port: 81, targetPort: admin}]
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceExport
metadata: {name: web, namespace: sample}
`

func sampleSet(t *testing.T) *Set {
	t.Helper()
	objects, _, err := Parse("sample.yaml", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	set := &Set{}
	if err := set.Apply(objects); err != nil {
		t.Fatal(err)
	}
	return set
}

func podNames(pods []Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Owner+" "+p.ID())
	}
	return out
}

func owners(pods []Pod) map[string]string {
	out := map[string]string{}
	for _, p := range pods {
		out[p.ID()] = p.Owner
	}
	return out
}

// TestPodNames follows a Deployment and a StatefulSet of the same name through
// scaling: no pod of the Deployment is renamed unless the StatefulSet needs its name.
func TestPodNames(t *testing.T) {
	t.Parallel()
	set := sampleSet(t)
	statefulSet := Key{Kind: "StatefulSet", Namespace: "sample", Name: "web"}
	deployment := Key{Kind: "Deployment", Namespace: "sample", Name: "web"}
	steps := []struct {
		name   string
		change func() error
		want   []string
	}{
		{"first", func() error { return nil }, []string{
			"StatefulSet/web sample/web-0", "StatefulSet/web sample/web-1",
			"Deployment/web sample/web-2", "Deployment/web sample/web-3", "Deployment/web sample/web-4",
		}},
		{"statefulset shrinks", func() error { return set.Scale(statefulSet, 1) }, []string{
			"StatefulSet/web sample/web-0",
			"Deployment/web sample/web-2", "Deployment/web sample/web-3", "Deployment/web sample/web-4",
		}},
		{"statefulset grows over a name", func() error { return set.Scale(statefulSet, 3) }, []string{
			"StatefulSet/web sample/web-0", "StatefulSet/web sample/web-1", "StatefulSet/web sample/web-2",
			"Deployment/web sample/web-3", "Deployment/web sample/web-4", "Deployment/web sample/web-5",
		}},
		{"deployment shrinks", func() error { return set.Scale(deployment, 1) }, []string{
			"StatefulSet/web sample/web-0", "StatefulSet/web sample/web-1", "StatefulSet/web sample/web-2",
			"Deployment/web sample/web-3",
		}},
	}
	running := map[string]string{}
	for _, step := range steps {
		if err := step.change(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		pods := set.Pods(running)
		if diff := cmp.Diff(step.want, podNames(pods)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		running = owners(pods)
	}
}

func TestStatefulPodsHaveNames(t *testing.T) {
	t.Parallel()
	pods := sampleSet(t).Pods(nil)
	i := slices.IndexFunc(pods, func(p Pod) bool { return p.Name == "web-1" })
	if pods[i].Hostname != "web-1" || pods[i].Subdomain != "web-ss" || pods[i].Labels["apps.kubernetes.io/pod-index"] != "1" {
		t.Errorf("web-1: %+v", pods[i])
	}
	want := []ContainerPort{{Protocol: "TCP", Number: 80}, {Protocol: "UDP", Number: 53}}
	if diff := cmp.Diff(want, pods[i].ListenPorts()); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// TestBackends tests that a named target port is resolved in the pod, and that a pod without it is no
// backend.
func TestBackends(t *testing.T) {
	t.Parallel()
	set := sampleSet(t)
	pods := set.Pods(nil)
	backends := Backends(set.Services()[0].Service, pods)
	if len(backends) != 3 {
		t.Fatalf("%d backends, want the 3 pods of the Deployment", len(backends))
	}
	want := []ServicePort{{Name: "http", Protocol: "TCP", Port: 80, Target: 8080}}
	if diff := cmp.Diff(want, backends[0].Ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// TestUnusedFields: each field that the lab does not honour gets a warning with its place. Fields that
// it honours, and fields of containers, get none.
func TestUnusedFields(t *testing.T) {
	t.Parallel()
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n"
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec:\n  ports: [{port: 80}]\n"
	const set = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: d}\nspec:\n  selector: {matchLabels: {a: b}}\n  template: {metadata: {labels: {a: b}}, spec: {containers: []}}\n"
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"honoured", pod + "  nodeSelector: {a: b}\n  hostNetwork: true\n  hostname: h\n  subdomain: s\n  readinessGates: [{conditionType: x}]\n  dnsPolicy: ClusterFirst\n", nil},
		{"containers", pod + "  tolerations: [{operator: Exists}]\n  volumes: []\n  containers: [{name: c, image: x, env: [{name: A, value: b}], readinessProbe: {httpGet: {port: 80}}, ports: [{name: a, containerPort: 80, protocol: TCP}]}]\n", nil},
		{"host port", pod + "  containers:\n  - name: c\n    ports:\n    - {containerPort: 80, hostPort: 8080}\n", []string{"f.yaml:8:27: warning: Pod p: spec.containers.ports.hostPort: 8080 has no effect in the lab"}},
		{"SCTP", pod + "  containers: [{name: c, ports: [{containerPort: 80, protocol: SCTP}]}]\n", []string{"f.yaml:5:54: warning: Pod p: spec.containers.ports.protocol: SCTP has no effect in the lab"}},
		{"names of pods", pod + "  dnsPolicy: None\n  dnsConfig: {nameservers: [192.0.2.1]}\n  hostAliases: [{ip: 192.0.2.1}]\n", []string{
			"f.yaml:5:3: warning: Pod p: spec.dnsPolicy: None has no effect in the lab",
			"f.yaml:6:3: warning: Pod p: spec.dnsConfig has no effect in the lab",
			"f.yaml:7:3: warning: Pod p: spec.hostAliases has no effect in the lab"}},
		{"order of pods", set + "  podManagementPolicy: OrderedReady\n  replicas: 0\n  ordinals: {start: 3}\n", []string{
			"f.yaml:7:3: warning: StatefulSet d: spec.podManagementPolicy: OrderedReady has no effect in the lab"}},
		{"template", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  paused: true\n  selector: {matchLabels: {a: b}}\n  template: {metadata: {labels: {a: b}}, spec: {affinity: {}}}\n", []string{
			"f.yaml:5:3: warning: Deployment d: spec.paused: true has no effect in the lab",
			"f.yaml:7:49: warning: Deployment d: spec.template.spec.affinity has no effect in the lab"}},
		{"service", service + "  publishNotReadyAddresses: true\n  sessionAffinity: ClientIP\n  internalTrafficPolicy: Local\n  type: ClusterIP\n", nil},
		{"addresses of a service", service + "  type: LoadBalancer\n  externalIPs: [192.0.2.1]\n  externalTrafficPolicy: Local\n", []string{
			"f.yaml:6:3: warning: Service s: spec.type: LoadBalancer has no effect in the lab",
			"f.yaml:7:3: warning: Service s: spec.externalIPs has no effect in the lab",
			"f.yaml:8:3: warning: Service s: spec.externalTrafficPolicy: Local has no effect in the lab"}},
		{"anchors", "apiVersion: v1\nkind: Service\nmetadata: {name: s, annotations: &x {a: b}}\nspec: {ports: [{port: 80, nodePort: 30000}], selector: *x}\n", []string{
			"f.yaml:4:27: warning: Service s: spec.ports.nodePort: 30000 has no effect in the lab"}},
		{"export", "apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: {name: s}\nspec: {exportedLabels: {a: b}}\n", nil},
	} {
		_, warnings, err := Parse("f.yaml", []byte(tt.text))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		var got []string
		for _, w := range warnings {
			got = append(got, w.Error())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestPodsOf: what the manifests of pods and their controllers say about names, ports and readiness.
func TestPodsOf(t *testing.T) {
	t.Parallel()
	objects, _, err := Parse("f.yaml", []byte(`apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  ordinals: {start: 2}
  selector: {matchExpressions: [{key: app, operator: Exists}]}
  template:
    metadata: {labels: {app: db}}
    spec:
      nodeSelector: {disk: fast}
      containers: [{name: c, image: x, ports: [{containerPort: 80}]}]
      initContainers:
      - {name: proxy, image: x, restartPolicy: Always, ports: [{name: proxy, containerPort: 81}]}
      - {name: setup, image: x, ports: [{containerPort: 82}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: none}
spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: []}}}
---
apiVersion: v1
kind: Pod
metadata: {name: gated, labels: {app: db}}
spec: {readinessGates: [{conditionType: example.org/up}], containers: []}
---
apiVersion: v1
kind: Service
metadata: {name: elsewhere}
spec: {type: ExternalName, externalName: www.example.org, selector: {app: db}}
`))
	if err != nil {
		t.Fatal(err)
	}
	set := &Set{}
	if err := set.Apply(objects); err != nil {
		t.Fatal(err)
	}
	pods := set.Pods(nil)
	var got []string
	for _, p := range pods {
		got = append(got, fmt.Sprint(p.ID(), " ", p.Hostname, " ", p.Labels["apps.kubernetes.io/pod-index"], " ", p.ListenPorts(), " ", p.WantsReady(), " ", p.NodeLabels))
	}
	want := []string{
		"default/db-2 db-2 2 [{ TCP 80} {proxy TCP 81}] true map[disk:fast]",
		"default/db-3 db-3 3 [{ TCP 80} {proxy TCP 81}] true map[disk:fast]",
		"default/gated   [] false map[]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if backends := Backends(set.Services()[0].Service, pods); len(backends) != 0 {
		t.Errorf("a Service of type ExternalName has %d endpoints", len(backends))
	}
}

func TestWriteParses(t *testing.T) {
	t.Parallel()
	set := sampleSet(t)
	raw, err := Write(set.Objects())
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := Parse("again.yaml", raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(set.Objects(), again); diff != "" {
		t.Errorf("written and read again (-want +got):\n%s", diff)
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	var nested strings.Builder
	for i := range 40 {
		fmt.Fprintf(&nested, "  a%d: &a%[1]d [*a%d, *a%[2]d, *a%[2]d]\n", i+1, i)
	}
	tests := []struct{ name, text, want string }{
		{"kind", "apiVersion: v1\n\nkind: ConfigMap\nmetadata: {name: x}\n",
			`f.yaml:3:1: error: kind "ConfigMap" of apiVersion "v1" does not run in the lab`},
		{"version", "apiVersion: v1\nkind: Deployment\n", `f.yaml:2:1: error: kind "Deployment" of apiVersion "v1" does not run`},
		{"second document", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\n",
			"f.yaml:5:1: error: Pod has no metadata.name"},
		{"unknown field", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {container: []}\n", `unknown field "spec.container"`},
		{"syntax", "apiVersion: v1\nkind: [\n", "f.yaml:2:1: error: "},
		{"aliases of aliases", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  a0: &a0 [x, x]\n" + nested.String(), "f.yaml:1:1: error: document contains excessive aliasing"},
		{"an alias of itself", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: &a {containers: [*a]}\n", "f.yaml:1:1: error: anchor 'a' value contains itself"},
		{"values", "a: [" + strings.Repeat("a,", 1_000_000) + "]\n", "f.yaml:1:1: error: more than 1000000 YAML values in one file"},
		{"scalar", "hello\n", "f.yaml:1:1: error: a manifest is a mapping"},
		{"selector", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n" +
			"spec: {selector: {matchLabels: {a: b}}, template: {spec: {containers: []}}}\n",
			"must match the labels of spec.template"},
		{"selector by expressions", "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\n" +
			"spec: {selector: {matchExpressions: [{key: app, operator: In, values: [x]}]}, template: {metadata: {labels: {app: y}}, spec: {containers: []}}}\n",
			"must match the labels of spec.template"},
		{"service ports", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n", "spec.ports is required"},
		{"external name", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: ExternalName}\n", "spec.externalName is required"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Parse("f.yaml", []byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestSetRefuses(t *testing.T) {
	t.Parallel()
	set := sampleSet(t)
	before := set.Objects()
	pod, _, err := Parse("f.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: nowhere}\nspec: {containers: []}\n"))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		do   func() error
		want string
	}{
		{"namespace", func() error { return set.Apply(pod) }, `no namespace "nowhere": add a Namespace manifest`},
		{"delete", func() error { return set.Delete([]Key{{Kind: "Pod", Namespace: "sample", Name: "gone"}}) }, "sample/Pod/gone: not found"},
		{"scale service", func() error { return set.Scale(Key{Kind: "Service", Namespace: "sample", Name: "web"}, 2) }, "only a Deployment"},
	}
	for _, tt := range tests {
		if err := tt.do(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q in it", tt.name, err, tt.want)
		}
	}
	if diff := cmp.Diff(before, set.Objects()); diff != "" {
		t.Errorf("refused changes changed something (-want +got):\n%s", diff)
	}
}

func TestDeleteNamespaceDeletesObjects(t *testing.T) {
	t.Parallel()
	set := sampleSet(t)
	if err := set.Delete([]Key{{Kind: "Namespace", Name: "sample"}}); err != nil {
		t.Fatal(err)
	}
	if remaining := set.Objects(); len(remaining) != 0 {
		t.Errorf("left: %v", remaining)
	}
}
