package render_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/render"
)

// TestImage checks the precedence of images: topology, flag, published image, version of Hawser.
func TestImage(t *testing.T) {
	t.Parallel()
	with := func(image, flag string, previous render.Tree, version string) (render.Tree, diag.List) {
		topology := world(2, 1)
		if image != "" {
			topology = strings.Replace(topology, "spec:\n", "spec:\n  agent: {image: "+image+"}\n", 1)
		}
		in := input(t, topology)
		in.Image, in.Previous, in.Version = flag, previous, version
		return render.Render(in)
	}
	published, list := with("", "", nil, "v1.0.0")
	noErrors(t, list)
	tests := []struct {
		name, image, flag string
		previous          render.Tree
		want              string
	}{
		{"first publication", "", "", nil, "hawser.dev/hawser-agent:v2.0.0-1-gabc-dirty"},
		{"another version", "", "", published, "hawser.dev/hawser-agent:v1.0.0"},
		{"topology", "a/b:v3", "", published, "a/b:v3"},
		{"flag", "", "a/b:v4", published, "a/b:v4"},
		{"both alike", "a/b:v4", "a/b:v4", published, "a/b:v4"},
	}
	for _, tt := range tests {
		tree, list := with(tt.image, tt.flag, tt.previous, "v2.0.0-1-gabc+dirty")
		noErrors(t, list)
		for _, name := range []string{render.AgentName, render.GatewayName} {
			have := daemonSet(t, build(t, tree, "clusters/c0"), name).Spec.Template.Spec.Containers[0].Image
			if have != tt.want || render.ImageOf(tree) != tt.want {
				t.Errorf("%s: %s runs %s (%s by its tree), want %s", tt.name, name, have, render.ImageOf(tree), tt.want)
			}
		}
	}
	if _, list := with("a/b:v3", "a/b:v4", published, ""); len(list) != 1 || list[0].Code != "image-conflict" || list[0].Path != "agent.image" {
		t.Errorf("topology and flag disagree: %v", list)
	}
	_, list = with("", "a/b", published, "")
	if len(list) != 1 || list[0].Code != "bad-image" || list[0].Severity != diag.Warning {
		t.Errorf("a flag without a version: %v", list)
	}
}

// TestAgentSettings checks that both DaemonSets contain spec.agent, and that the defaults stay.
func TestAgentSettings(t *testing.T) {
	t.Parallel()
	pods := func(agent string) []corev1.PodSpec {
		objects := build(t, mustRender(t, input(t, strings.Replace(world(2, 1), "spec:\n", "spec:\n"+agent, 1))), "clusters/c0")
		return []corev1.PodSpec{daemonSet(t, objects, render.AgentName).Spec.Template.Spec, daemonSet(t, objects, render.GatewayName).Spec.Template.Spec}
	}
	type said struct {
		Priority, Requests, Limits string
		Tolerations                []corev1.Toleration
		Secrets                    []corev1.LocalObjectReference
	}
	read := func(p corev1.PodSpec) said {
		r := p.Containers[0].Resources
		return said{p.PriorityClassName, r.Requests.Cpu().String() + " " + r.Requests.Memory().String(),
			r.Limits.Cpu().String() + " " + r.Limits.Memory().String(), p.Tolerations, p.ImagePullSecrets}
	}
	everything := []corev1.Toleration{{Operator: "Exists"}}
	want := []said{
		{"system-node-critical", "50m 64Mi", "0 512Mi", everything, nil},
		{"system-node-critical", "50m 64Mi", "0 1Gi", everything, nil},
	}
	have := pods("")
	if diff := cmp.Diff(want, []said{read(have[0]), read(have[1])}); diff != "" {
		t.Errorf("defaults (-want +got)\n%s", diff)
	}
	taints := []corev1.Toleration{{Key: "no", Operator: "Equal", Value: "1e3", Effect: "NoSchedule"}, {Operator: "Exists"}}
	secrets := []corev1.LocalObjectReference{{Name: "login"}, {Name: "123"}}
	want = []said{{"0day", "1 100M", "2500m 128M", taints, secrets}, {"0day", "1 100M", "0 2Gi", taints, secrets}}
	have = pods(`  agent:
    priorityClassName: 0day
    imagePullSecrets: [login, "123"]
    tolerations: [{key: "no", value: "1e3", effect: NoSchedule}, {operator: Exists}]
    requests: {cpu: "1", memory: 100M}
    limits: {cpu: "2.5", memory: "128000000"}
    gatewayLimits: {memory: 2Gi}
`)
	if diff := cmp.Diff(want, []said{read(have[0]), read(have[1])}); diff != "" {
		t.Errorf("settings (-want +got)\n%s", diff)
	}
}

// TestOlder checks the warning about agents that are newer than Hawser, for every source of the
// image.
func TestOlder(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		version, image string
		warns          bool
	}{
		{"v0.2.0", "a/hawser-agent:v0.3.0", true},
		{"v0.2.0", "a:5000/hawser-agent:v0.2.1@sha256:" + strings.Repeat("a", 64), true},
		{"v0.2.0", "a/hawser-agent:v0.2.0", false},
		{"v0.2.0", "a/hawser-agent:v0.2.0-rc.1", false},
		{"v0.2.0-rc.1", "a/hawser-agent:v0.2.0", true},
		{"v0.2.0-5-g7ecccc4-dirty", "a/hawser-agent:v0.2.0", false},
		{"v0.10.0", "a/hawser-agent:v0.9.0", false},
		{"dev", "a/hawser-agent:v0.3.0", false},
		{"v0.2.0", "a/hawser-agent@sha256:" + strings.Repeat("a", 64), false},
		{"v0.2.0", "a/hawser-agent:lab", false},
	} {
		t.Run(tt.version+" "+tt.image, func(t *testing.T) {
			t.Parallel()
			in := input(t, world(2, 1))
			in.Image, in.Version = tt.image, tt.version
			_, list := render.Render(in)
			noErrors(t, list)
			if (len(list) == 1 && list[0].Code == "hawser-older" && strings.Contains(list[0].Summary, tt.version)) != tt.warns || !tt.warns && len(list) > 0 {
				t.Errorf("findings %v, want a warning: %v", list, tt.warns)
			}
		})
	}
}
