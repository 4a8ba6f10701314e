package workload

import (
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
	objects, err := Parse("sample.yaml", []byte(sample))
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
	if diff := cmp.Diff(want, pods[i].Serves()); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// TestBackends: a named target port is looked up in the pod; one that the pod
// lacks is not offered.
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

func TestWriteParses(t *testing.T) {
	t.Parallel()
	set := sampleSet(t)
	raw, err := Write(set.Objects())
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("again.yaml", raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(set.Objects(), again); diff != "" {
		t.Errorf("written and read again (-want +got):\n%s", diff)
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want string }{
		{"kind", "apiVersion: v1\n\nkind: ConfigMap\nmetadata: {name: x}\n",
			`f.yaml:3:1: error: kind "ConfigMap" of apiVersion "v1" does not run in the lab`},
		{"version", "apiVersion: v1\nkind: Deployment\n", `f.yaml:2:1: error: kind "Deployment" of apiVersion "v1" does not run`},
		{"second document", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\n",
			"f.yaml:5:1: error: Pod has no metadata.name"},
		{"unknown field", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {container: []}\n", `unknown field "spec.container"`},
		{"syntax", "apiVersion: v1\nkind: [\n", "f.yaml:2:1: error: "},
		{"scalar", "hello\n", "f.yaml:1:1: error: a manifest is a mapping"},
		{"selector", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n" +
			"spec: {selector: {matchLabels: {a: b}}, template: {spec: {containers: []}}}\n",
			"must match the labels of spec.template"},
		{"service ports", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n", "spec.ports is required"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f.yaml", []byte(tt.text))
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
	lost, err := Parse("f.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: nowhere}\nspec: {containers: []}\n"))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		do   func() error
		want string
	}{
		{"namespace", func() error { return set.Apply(lost) }, `no namespace "nowhere": add a Namespace manifest`},
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

func TestDeleteNamespaceTakesAll(t *testing.T) {
	t.Parallel()
	set := sampleSet(t)
	if err := set.Delete([]Key{{Kind: "Namespace", Name: "sample"}}); err != nil {
		t.Fatal(err)
	}
	if left := set.Objects(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
