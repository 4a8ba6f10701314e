package render_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/render"
)

func withUI(t *testing.T, ui string, more ...string) render.Input {
	t.Helper()
	return input(t, strings.Replace(world(2, 1), "spec:\n", "spec:\n  ui: "+ui+"\n"+strings.Join(more, ""), 1))
}

func decoded[T any](t *testing.T, objects map[string]string, key string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(objects[key]), out); err != nil || objects[key] == "" {
		t.Fatalf("%s: %v", key, err)
	}
	return out
}

// TestPageIsServed checks that only clusters in the topology's ui serve the page, with the
// topology's host names and Secret.
func TestPageIsServed(t *testing.T) {
	t.Parallel()
	const key = "Deployment hawser-system/hawser-ui"
	for _, tt := range []struct {
		ui, args, secret string
		in               []string
	}{
		{"", "", "", nil},
		{"{}", "", "", []string{"c0", "c1"}},
		{"{clusters: [c1], hosts: [map.example.com, a.example.com], tokenSecret: page}", "--host=a.example.com --host=map.example.com --token-file=/etc/hawser/token/token", "page", []string{"c1"}},
	} {
		in := input(t, world(2, 1))
		if tt.ui != "" {
			in = withUI(t, tt.ui)
		}
		tree := mustRender(t, in)
		var have []string
		for _, c := range []string{"c0", "c1"} {
			objects := build(t, tree, "clusters/"+c)
			if objects[key] == "" {
				continue
			}
			have = append(have, c)
			pod := decoded[appsv1.Deployment](t, objects, key).Spec.Template.Spec
			args, secrets := pod.Containers[0].Args, []string{}
			for _, v := range pod.Volumes {
				if v.Secret != nil {
					secrets = append(secrets, v.Secret.SecretName)
				}
			}
			if !slices.Contains(args, "--cluster="+c) || strings.Join(args[slices.Index(args, "--listen=:8080")+1:], " ") != tt.args {
				t.Errorf("%s in %s: arguments %q", tt.ui, c, args)
			}
			if want := append([]string{"hawser-trust"}, strings.Fields(tt.secret)...); !slices.Equal(secrets, want) {
				t.Errorf("%s in %s: secrets %q, want %q", tt.ui, c, secrets, want)
			}
		}
		if !slices.Equal(have, tt.in) {
			t.Errorf("%q: pages in %q, want %q", tt.ui, have, tt.in)
		}
	}
}

// TestPageIsConfined checks that the page's account can only read HawserNodes and the pods of
// hawser-system. The page's pod satisfies the Pod Security Standard restricted.
func TestPageIsConfined(t *testing.T) {
	t.Parallel()
	objects := build(t, mustRender(t, withUI(t, "{tokenSecret: page}")), "clusters/c0")
	for key, text := range objects {
		kind, _, _ := strings.Cut(key, " ")
		if !strings.Contains(text, "name: hawser-ui") {
			continue
		}
		object, ok := map[string]any{"Deployment": &appsv1.Deployment{}, "Service": &corev1.Service{}, "ServiceAccount": &corev1.ServiceAccount{},
			"ClusterRole": &rbacv1.ClusterRole{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
			"Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{}}[kind]
		if !ok {
			t.Errorf("%s is of the page", key)
		} else if err := yaml.UnmarshalStrict([]byte(text), object); err != nil || !strings.Contains(text, "app.kubernetes.io/part-of: hawser") {
			t.Errorf("%s: %v\n%s", key, err, text)
		}
	}
	rules := decoded[rbacv1.ClusterRole](t, objects, "ClusterRole hawser-ui").Rules
	want := []rbacv1.PolicyRule{{APIGroups: []string{"hawser.dev"}, Resources: []string{"hawsernodes"}, Verbs: []string{"get", "list", "watch"}}}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("rights (-want +have):\n%s", diff)
	}
	pods := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}}}
	if diff := cmp.Diff(pods, decoded[rbacv1.Role](t, objects, "Role hawser-system/hawser-ui").Rules); diff != "" {
		t.Errorf("rights in hawser-system (-want +have):\n%s", diff)
	}
	inNamespace := decoded[rbacv1.RoleBinding](t, objects, "RoleBinding hawser-system/hawser-ui")
	if len(inNamespace.Subjects) != 1 || inNamespace.Subjects[0].Name != "hawser-ui" || inNamespace.RoleRef.Kind != "Role" || inNamespace.RoleRef.Name != "hawser-ui" {
		t.Errorf("%+v", inNamespace)
	}
	binding := decoded[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding hawser-ui")
	if len(binding.Subjects) != 1 || binding.Subjects[0].Name != "hawser-ui" || binding.Subjects[0].Namespace != "hawser-system" || binding.RoleRef.Name != "hawser-ui" {
		t.Errorf("%+v", binding)
	}
	if *decoded[corev1.ServiceAccount](t, objects, "ServiceAccount hawser-system/hawser-ui").AutomountServiceAccountToken {
		t.Error("every pod of the account mounts its token")
	}
	d := decoded[appsv1.Deployment](t, objects, "Deployment hawser-system/hawser-ui")
	pod, c := &d.Spec.Template.Spec, &d.Spec.Template.Spec.Containers[0]
	s := c.SecurityContext
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || !*pod.SecurityContext.RunAsNonRoot || *pod.SecurityContext.RunAsUser == 0 ||
		pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || s.Privileged != nil || *s.AllowPrivilegeEscalation ||
		!*s.ReadOnlyRootFilesystem || len(s.Capabilities.Add) > 0 || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || c.Ports[0].HostPort != 0 {
		t.Errorf("the pod is not confined: %+v, %+v", pod.SecurityContext, s)
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil || v.Secret != nil && v.Secret.SecretName != "hawser-trust" && (len(v.Secret.Items) != 1 || v.Secret.Items[0].Key != "token") {
			t.Errorf("volume %+v", v)
		}
	}
	if *d.Spec.Replicas != 1 || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || c.LivenessProbe == nil || c.ReadinessProbe == nil || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("%+v", d.Spec)
	}
	service := decoded[corev1.Service](t, objects, "Service hawser-system/hawser-ui")
	if service.Spec.Type != "" || len(service.Spec.Ports) != 1 || service.Spec.Selector["app.kubernetes.io/name"] != d.Spec.Template.Labels["app.kubernetes.io/name"] {
		t.Errorf("%+v", service.Spec)
	}
}

// TestPageIngress checks that the Ingress in docs/monitoring.md refers to the Service.
func TestPageIngress(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(raw), "\n    apiVersion: networking.k8s.io/v1\n")
	text, _, _ = strings.Cut("    apiVersion: networking.k8s.io/v1\n"+text, "\n\n")
	ingress := decoded[networkingv1.Ingress](t, map[string]string{"": strings.ReplaceAll("\n"+text, "\n    ", "\n")}, "")
	service := decoded[corev1.Service](t, build(t, mustRender(t, withUI(t, "{}")), "clusters/c0"), "Service hawser-system/hawser-ui")
	to := ingress.Spec.Rules[0].HTTP.Paths[0].Backend.Service
	if !found || ingress.Namespace != service.Namespace || to.Name != service.Name || to.Port.Name != service.Spec.Ports[0].Name {
		t.Errorf("%+v, %+v", to, service.Spec)
	}
}

// TestPageImage checks that the page's image follows from the agents' image by name and tag.
// Otherwise it is an error with a hint.
func TestPageImage(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("a", 64)
	for _, tt := range []struct{ agent, ui, want string }{
		{"", "{}", "hawser.dev/hawser:dev"},
		{"registry.example.org:5000/team/hawser-agent:v1.2.3", "{}", "registry.example.org:5000/team/hawser:v1.2.3"},
		{"hawser.dev/hawser-agent-ipsec:v1.2.3", "{}", "hawser.dev/hawser:v1.2.3"},
		{"hawser.dev/hawser-agent:v1.2.3-ipsec", "{}", "hawser.dev/hawser:v1.2.3"},
		{"hawser-agent:v1", "{}", "hawser:v1"},
		{"hawser.dev/hawser-agent:v1" + digest, "{image: 'mirror/hawser:v1" + digest + "'}", "mirror/hawser:v1" + digest},
		{"hawser.dev/hawser-agent:v1" + digest, "{}", ""},
		{"hawser.dev/hawser-agent" + digest, "{}", ""},
		{"registry.example.org/ours:v1", "{}", ""},
	} {
		agent := ""
		if tt.agent != "" {
			agent = "  agent: {image: '" + tt.agent + "'}\n"
		}
		tree, list := render.Render(withUI(t, tt.ui, agent))
		if tt.want == "" {
			if err := list.Err(); err == nil || !strings.Contains(err.Error(), "which image has hawser does not follow from the agents' image "+tt.agent) {
				t.Errorf("%s: %v", tt.agent, err)
			}
			continue
		}
		if err := list.Err(); err != nil {
			t.Errorf("%s: %v", tt.agent, err)
			continue
		}
		if have := decoded[appsv1.Deployment](t, build(t, tree, "clusters/c0"), "Deployment hawser-system/hawser-ui").Spec.Template.Spec.Containers[0].Image; have != tt.want {
			t.Errorf("%s: %s, want %s", tt.agent, have, tt.want)
		}
	}
}
