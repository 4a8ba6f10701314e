package render_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/allocate"
)

// picking returns a topology in which labels select gateways of c0, and one gateway has a node.
func picking(gateways string) string {
	return strings.Replace(world(2, 1), "    - {name: a, node: n1, endpoints: [203.0.0.1]}\n    - {name: b, node: n2, endpoints: [203.0.0.2]}\n", gateways, 1)
}

const picked = `    - {name: fixed, node: n1, endpoints: [203.0.0.1]}
    - {name: edge, nodeSelector: {node-restriction.kubernetes.io/role: edge, zone: "1"}, count: 2}
    - {name: spare, nodeSelector: {node-restriction.kubernetes.io/spare: "yes"}}
`

// TestLeases checks that a cluster has a Lease for each gateway that labels select, and minimal
// permissions on Leases. Other clusters have no Leases and no permissions on them.
func TestLeases(t *testing.T) {
	t.Parallel()
	tree := mustRender(t, input(t, picking(picked)))
	var leases []string
	rules := map[string][]rbacv1.PolicyRule{}
	for key, text := range build(t, tree, "clusters/c0") {
		if strings.HasPrefix(key, "Lease ") {
			leases = append(leases, key)
			if strings.Contains(text, "spec:") {
				t.Errorf("%s has a spec, which only agents write:\n%s", key, text)
			}
		}
		var r rbacv1.Role
		if strings.HasPrefix(key, "Role ") || strings.HasPrefix(key, "ClusterRole ") {
			if err := yaml.Unmarshal([]byte(text), &r); err != nil {
				t.Fatal(err)
			}
			for _, rule := range r.Rules {
				if slices.Contains(rule.Resources, "leases") {
					rules[key] = append(rules[key], rule)
				}
			}
		}
	}
	slices.Sort(leases)
	want := []string{"Lease hawser-system/hawser-gateway-edge-1", "Lease hawser-system/hawser-gateway-edge-2", "Lease hawser-system/hawser-gateway-spare-1"}
	if diff := cmp.Diff(want, leases); diff != "" {
		t.Errorf("Leases (-want +have)\n%s", diff)
	}
	read := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "watch"}}
	write := rbacv1.PolicyRule{APIGroups: read.APIGroups, Resources: read.Resources, Verbs: []string{"update"},
		ResourceNames: []string{"hawser-gateway-edge-1", "hawser-gateway-edge-2", "hawser-gateway-spare-1"}}
	if diff := cmp.Diff(map[string][]rbacv1.PolicyRule{
		"Role hawser-system/hawser-agent-leases": {read}, "Role hawser-system/hawser-gateway-leases": {read, write},
	}, rules); diff != "" {
		t.Errorf("rights (-want +have)\n%s", diff)
	}
	for key := range build(t, tree, "clusters/c1") {
		if strings.Contains(strings.ToLower(key), "lease") && !strings.Contains(key, "hawser-own-lease") {
			t.Errorf("a cluster whose gateways are named has %s", key)
		}
	}
}

// TestPickedPlacement checks that every node runs one of the two agents, with any labels. Only
// gateways and their candidates run the agent with keys.
func TestPickedPlacement(t *testing.T) {
	t.Parallel()
	objects := build(t, mustRender(t, input(t, picking(picked))), "clusters/c0")
	for _, test := range []struct {
		name    string
		labels  labels.Set
		gateway bool
	}{
		{"n1", nil, true},
		{"n2", nil, false},
		{"n3", labels.Set{"node-restriction.kubernetes.io/role": "edge"}, false},
		{"n4", labels.Set{"zone": "1"}, false},
		{"n5", labels.Set{"node-restriction.kubernetes.io/role": "edge", "zone": "2"}, false},
		{"n6", labels.Set{"node-restriction.kubernetes.io/role": "edge", "zone": "1"}, true},
		{"n7", labels.Set{"node-restriction.kubernetes.io/spare": "yes"}, true},
		{"n8", labels.Set{"node-restriction.kubernetes.io/spare": "no", "node-restriction.kubernetes.io/role": "edge"}, false},
		{"n9", labels.Set{"node-restriction.kubernetes.io/spare": "yes", "node-restriction.kubernetes.io/role": "edge", "zone": "1"}, true},
		{"n1", labels.Set{"node-restriction.kubernetes.io/spare": "yes"}, true},
	} {
		gateway := placed(&daemonSet(t, objects, render.GatewayName).Spec.Template.Spec, test.name, test.labels)
		agent := placed(&daemonSet(t, objects, render.AgentName).Spec.Template.Spec, test.name, test.labels)
		if gateway != test.gateway || agent == test.gateway {
			t.Errorf("%s with %v: gateways' agent %t, nodes' agent %t, want %t and %t", test.name, test.labels, gateway, agent, test.gateway, !test.gateway)
		}
	}
}

// placed reports whether the scheduler can place a pod on a node with this name and these labels.
func placed(pod *corev1.PodSpec, name string, has labels.Set) bool {
	one := func(value string, there bool, r corev1.NodeSelectorRequirement) bool {
		in := there && slices.Contains(r.Values, value)
		return in == (r.Operator == corev1.NodeSelectorOpIn)
	}
	return slices.ContainsFunc(pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		for _, r := range term.MatchFields {
			if !one(name, true, r) {
				return false
			}
		}
		for _, r := range term.MatchExpressions {
			value, there := has[r.Key]
			if !one(value, there, r) {
				return false
			}
		}
		return true
	})
}

// TestPickedGateways checks that the fabric, the keys and the lock have one entry without a node
// for each selected gateway. Another number of gateways does not change the remaining entries.
func TestPickedGateways(t *testing.T) {
	t.Parallel()
	in := input(t, picking(picked))
	two, err := render.FabricOf(mustRender(t, in))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range two.Cluster("c0").Gateways {
		names = append(names, g.Name)
		if (g.Node == "") != g.HasNodeSelector() || len(g.Keys) == 0 || g.Keys[0].Public == "" || len(g.Addresses) == 0 {
			t.Errorf("gateway %+v", g)
		}
	}
	if diff := cmp.Diff([]string{"edge-1", "edge-2", "fixed", "spare-1"}, names); diff != "" {
		t.Errorf("gateways (-want +have)\n%s", diff)
	}
	keys, err := in.Root.Keys(in.Topology, in.Topology.Cluster("c0"))
	if err != nil || len(keys.Epochs[0].Gateways) != 4 {
		t.Errorf("%d keys are sealed to the cluster, want 4: %v", len(keys.Epochs[0].Gateways), err)
	}
	next := input(t, picking(strings.Replace(picked, "count: 2", "count: 3", 1)))
	lock, list := allocate.Allocate(next.Topology, in.Lock)
	noErrors(t, list)
	in.Topology, in.Lock = next.Topology, lock
	three, err := render.FabricOf(mustRender(t, in))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if diff := cmp.Diff(two.Cluster("c0").Gateway(name), three.Cluster("c0").Gateway(name), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s changed with the count (-2 +3)\n%s", name, diff)
		}
	}
	if three.Cluster("c0").Gateway("edge-3") == nil {
		t.Error("there is no edge-3")
	}
}
