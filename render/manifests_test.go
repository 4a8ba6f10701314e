package render_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/render"
)

// others contains the kinds that k8s.io/api lacks.
var others = []string{"CustomResourceDefinition", "ServiceExport", "Kustomization", "ApplicationSet"}

// TestTypes checks that objects of Kubernetes types have no unknown fields. All objects have the
// label part-of, except CRDs of other groups.
func TestTypes(t *testing.T) {
	t.Parallel()
	tree := mustRender(t, input(t, strings.Replace(world(2, 3), "spec:\n", "spec:\n  dynamicExports: {namespaces: [a]}\n", 1)))
	objects := build(t, tree, "clusters/c0")
	maps.Copy(objects, build(t, tree, "clusters/c0/exports"))
	maps.Copy(objects, build(t, tree, "argocd"))
	for key, text := range objects {
		kind, name, _ := strings.Cut(key, " ")
		if foreign := kind == "CustomResourceDefinition" && !strings.HasSuffix(name, ".hawser.dev"); !foreign &&
			!strings.Contains(text, "app.kubernetes.io/part-of: hawser") {
			t.Errorf("%s lacks the label part-of", key)
		}
		if slices.Contains(others, kind) {
			continue
		}
		object, ok := kinds()[kind]
		if !ok {
			t.Errorf("%s: no type for it", key)
		} else if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func kinds() map[string]any {
	return map[string]any{
		"Namespace": &corev1.Namespace{}, "ConfigMap": &corev1.ConfigMap{}, "Secret": &corev1.Secret{}, "ServiceAccount": &corev1.ServiceAccount{},
		"DaemonSet": &appsv1.DaemonSet{}, "ClusterRole": &rbacv1.ClusterRole{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
		"Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{}, "ValidatingAdmissionPolicy": &admissionv1.ValidatingAdmissionPolicy{},
		"ValidatingAdmissionPolicyBinding": &admissionv1.ValidatingAdmissionPolicyBinding{},
	}
}

func daemonSet(t *testing.T, objects map[string]string, name string) *appsv1.DaemonSet {
	t.Helper()
	out := &appsv1.DaemonSet{}
	if err := yaml.UnmarshalStrict([]byte(objects["DaemonSet hawser-system/"+name]), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// matches reports whether the required node affinity of a pod matches a node.
func matches(pod *corev1.PodSpec, node string) bool {
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			in := len(r.Values) == 1 && r.Values[0] == node // Kubernetes accepts exactly one
			return r.Key != "metadata.name" || len(r.Values) != 1 || in != (r.Operator == corev1.NodeSelectorOpIn)
		})
	})
}

// TestPlacement checks that each node runs exactly one agent, and that only gateways mount keys.
// Without a cluster's patches there are no gateways.
func TestPlacement(t *testing.T) {
	t.Parallel()
	tree := mustRender(t, input(t, world(2, 1)))
	objects := build(t, tree, "clusters/c1")
	for node, gateway := range map[string]bool{"n1": true, "n2": true, "n3": false} {
		if matches(&daemonSet(t, objects, render.GatewayName).Spec.Template.Spec, node) != gateway {
			t.Errorf("the gateways' agent is on node %s: %v, want %v", node, !gateway, gateway)
		}
		if matches(&daemonSet(t, objects, render.AgentName).Spec.Template.Spec, node) == gateway {
			t.Errorf("the nodes' agent is on node %s: %v, want %v", node, gateway, !gateway)
		}
	}
	if matches(&daemonSet(t, build(t, tree, "base"), render.GatewayName).Spec.Template.Spec, "n1") {
		t.Error("base alone makes n1 a gateway")
	}
	for name, want := range map[string][]string{render.AgentName: {"hawser-trust"}, render.GatewayName: {"hawser-trust", "hawser-keys", "hawser-age-identity"}} {
		have := []string{}
		for _, v := range daemonSet(t, objects, name).Spec.Template.Spec.Volumes {
			if v.Secret != nil {
				have = append(have, v.Secret.SecretName)
			}
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("secrets of %s (-want +have)\n%s", name, diff)
		}
	}
}

// TestConfined checks that agents are not privileged, and can write only to the listed host paths.
func TestConfined(t *testing.T) {
	t.Parallel()
	objects := build(t, mustRender(t, input(t, world(2, 1))), "clusters/c0")
	for name, want := range map[string][]string{
		render.AgentName:   {"/var/lib/hawser", "/run/hawser", "/proc/sys/net"},
		render.GatewayName: {"/dev/net", "/var/lib/hawser", "/run/hawser", "/proc/sys/net"},
	} {
		pod := &daemonSet(t, objects, name).Spec.Template.Spec
		c := pod.Containers[0].SecurityContext
		if c.Privileged != nil || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || c.Capabilities.Drop[0] != "ALL" ||
			pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || pod.HostPID || pod.HostIPC {
			t.Errorf("%s: %+v", name, c)
		}
		have := []string{}
		for _, v := range pod.Volumes {
			if v.HostPath != nil {
				have = append(have, v.HostPath.Path)
			}
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("host paths of %s (-want +have)\n%s", name, diff)
		}
	}
}

// TestMetricsPort checks that agents serve metrics on their nodes' addresses if the topology
// enables it. Otherwise the output is the same as before.
func TestMetricsPort(t *testing.T) {
	t.Parallel()
	plain := world(2, 1)
	before := mustRender(t, input(t, plain))
	none := input(t, strings.Replace(plain, "spec:\n", "spec:\n  metrics: {port: 0}\n", 1))
	none.Previous = before
	if !mustRender(t, none).Equal(before) {
		t.Error("port 0 differs from none")
	}
	for text, want := range map[string]string{
		plain: "metrics 127.0.0.1:4806; --metrics=127.0.0.1:4806",
		strings.Replace(plain, "spec:\n", "spec:\n  metrics: {port: 8474}\n", 1): "health 127.0.0.1:4806, metrics :8474; " +
			"--metrics=127.0.0.1:4806 --metrics=[$(HOST_IP)]:8474; HOST_IP=status.hostIP",
	} {
		objects := build(t, mustRender(t, input(t, text)), "clusters/c0")
		for _, name := range []string{render.AgentName, render.GatewayName} {
			if have := listens(&daemonSet(t, objects, name).Spec.Template.Spec.Containers[0]); have != want {
				t.Errorf("%s: want %s, have %s", name, want, have)
			}
		}
	}
}

// listens returns a container's ports, its arguments about metrics, and their variables.
func listens(c *corev1.Container) string {
	var ports, args []string
	for _, p := range c.Ports {
		if p.ContainerPort != p.HostPort {
			return fmt.Sprintf("port %d of the container is %d of the host", p.ContainerPort, p.HostPort)
		}
		ports = append(ports, fmt.Sprintf("%s %s:%d", p.Name, p.HostIP, p.ContainerPort))
	}
	for _, a := range c.Args {
		if strings.HasPrefix(a, "--metrics=") {
			args = append(args, a)
		}
	}
	out := strings.Join(ports, ", ") + "; " + strings.Join(args, " ")
	for _, e := range c.Env {
		if e.Name == "HOST_IP" {
			out += "; HOST_IP=" + e.ValueFrom.FieldRef.FieldPath
		}
	}
	return out
}

// TestRights checks permissions of each role, with and without dynamic exports and egress rules. No
// rule contains *.
func TestRights(t *testing.T) {
	t.Parallel()
	plain := world(2, 1)
	dynamic := strings.Replace(plain, "spec:\n", "spec:\n  dynamicExports: {namespaces: [a]}\n", 1)
	egress := strings.Replace(plain, "    gateways:\n", "    egress: [{name: db, namespace: ns}]\n    gateways:\n", 1)
	tests := []struct {
		name, topology, role, verb, resource string
		want                                 bool
	}{
		{"a worker reads Services", plain, render.AgentName, "watch", "services", true},
		{"a worker reads no exports", plain, render.AgentName, "watch", "serviceexports", false},
		{"a worker reads exports made in the cluster", dynamic, render.AgentName, "watch", "serviceexports", true},
		{"a worker writes no imports", dynamic, render.AgentName, "patch", "serviceimports", false},
		{"a worker writes no slices", dynamic, render.AgentName, "patch", "endpointslices", false},
		{"a worker reads no pods", egress, render.AgentName, "watch", "pods", false},
		{"a gateway reads no pods", plain, render.GatewayName, "watch", "pods", false},
		{"a gateway reads pods for egress", egress, render.GatewayName, "watch", "pods", true},
		{"a gateway writes imports", plain, render.GatewayName, "patch", "serviceimports", true},
		{"a gateway makes no exports", dynamic, render.GatewayName, "create", "serviceexports", false},
		{"a gateway reads no Secrets", dynamic, render.GatewayName, "get", "secrets", false},
		{"a gateway reads not all ConfigMaps", dynamic, render.GatewayName, "get", "configmaps", false},
	}
	objects := map[string]map[string]string{}
	for _, topology := range []string{plain, dynamic, egress} {
		objects[topology] = build(t, mustRender(t, input(t, topology)), "base")
	}
	for _, tt := range tests {
		role := &rbacv1.ClusterRole{}
		if err := yaml.UnmarshalStrict([]byte(objects[tt.topology]["ClusterRole "+tt.role]), role); err != nil {
			t.Fatal(err)
		}
		have := false
		for _, r := range role.Rules {
			if all := fmt.Sprint(r); strings.Contains(all, "*") {
				t.Errorf("%s has a rule for everything: %s", tt.role, all)
			}
			have = have || slices.Contains(r.Resources, tt.resource) && slices.Contains(r.Verbs, tt.verb)
		}
		if have != tt.want {
			t.Errorf("%s: %v", tt.name, have)
		}
	}
}

// TestExportsApart checks that the directory of a cluster has no objects of users' namespaces. A
// missing namespace must block no other object.
func TestExportsApart(t *testing.T) {
	t.Parallel()
	text := world(2, 1) + "  - {name: api, namespace: other, clusters: [c0], ports: [{port: 80}], labels: {team: a}, annotations: {note: \"1\"}}\n"
	tree := mustRender(t, input(t, text))
	for key := range build(t, tree, "clusters/c0") {
		_, name, _ := strings.Cut(key, " ")
		if namespace, _, found := strings.Cut(name, "/"); found && namespace != render.Namespace && namespace != "kube-system" {
			t.Errorf("clusters/c0 holds %s", key)
		}
	}
	want := "spec:\n  exportedAnnotations:\n    note: \"1\"\n  exportedLabels:\n    team: a\n"
	if have := build(t, tree, "clusters/c0/exports")["ServiceExport other/api"]; !strings.HasSuffix(have, want) {
		t.Errorf("have\n%s", have)
	}
	flux := string(tree["flux/c0/exports.yaml"])
	for _, want := range []string{"name: hawser-ns\n", "path: ./clusters/c0/exports/ns\n", "name: hawser-other\n", "- name: hawser\n"} {
		if !strings.Contains(flux, want) {
			t.Errorf("flux/c0/exports.yaml lacks %q:\n%s", want, flux)
		}
	}
	if apps := string(tree["argocd/applicationset.yaml"]); !strings.Contains(apps, "{app: hawser-c0-other, cluster: c0, path: clusters/c0/exports/other}") {
		t.Errorf("no application for the exports:\n%s", apps)
	}
}

// TestLongNames checks that names of Kustomizations and Applications fit into a label.
func TestLongNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 62)
	text := strings.ReplaceAll(world(2, 2), "namespace: ns,", "namespace: "+long+"a,")
	text += "  - {name: api, namespace: " + long + "b, clusters: [c0], ports: [{port: 80}]}\n"
	tree := mustRender(t, input(t, text))
	names := map[string]bool{}
	for line := range strings.Lines(string(tree["flux/c0/exports.yaml"]) + string(tree["argocd/applicationset.yaml"])) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "name: hawser-n")
		if !ok {
			name, ok = strings.CutPrefix(strings.TrimSpace(line), "- {app: hawser-c0-n")
			name, _, _ = strings.Cut(name, ",")
		}
		if ok && len(name) > 55 {
			t.Errorf("%s is too long", name)
		}
		names[name] = ok
	}
	delete(names, "")
	if len(names) < 4 {
		t.Errorf("names %v", names)
	}
}
