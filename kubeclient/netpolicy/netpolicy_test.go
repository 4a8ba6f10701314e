package netpolicy_test

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hawser.dev/hawser/kubeclient/fakeapi"
	"hawser.dev/hawser/kubeclient/netpolicy"
)

const ingress, egress = networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress

// TestSelecting checks which policies select a pod.
func TestSelecting(t *testing.T) {
	t.Parallel()
	policy := func(namespace, name string, selector metav1.LabelSelector, types ...networkingv1.PolicyType) networkingv1.NetworkPolicy {
		return networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: networkingv1.NetworkPolicySpec{PodSelector: selector, PolicyTypes: types}}
	}
	app := func(name string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	withRules := policy("shop", "egress-rules", app("web"))
	withRules.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	notIn := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"web"}}}}
	all := []networkingv1.NetworkPolicy{
		policy("shop", "web", app("web")), policy("shop", "every-pod", metav1.LabelSelector{}, ingress, egress), policy("shop", "db", app("db")),
		policy("other", "every-pod-there", metav1.LabelSelector{}), policy("shop", "only-egress", app("web"), egress), policy("shop", "not-web", notIn), withRules,
	}
	pod := func(namespace, name string, host bool) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{HostNetwork: host}}
	}
	for _, tt := range []struct {
		name      string
		pod       *corev1.Pod
		direction networkingv1.PolicyType
		want      []string
	}{
		{"to a pod", pod("shop", "web", false), ingress, []string{"egress-rules", "every-pod", "web"}},
		{"from a pod", pod("shop", "web", false), egress, []string{"egress-rules", "every-pod", "only-egress"}},
		{"another label", pod("shop", "cache", false), ingress, []string{"every-pod", "not-web"}},
		{"another namespace", pod("other", "web", false), ingress, []string{"every-pod-there"}},
		{"a namespace without policies", pod("empty", "web", false), ingress, nil},
		{"a pod in the host network", pod("shop", "web", true), ingress, nil},
	} {
		if have, err := netpolicy.Selecting(tt.pod, tt.direction, all); err != nil || !slices.Equal(have, tt.want) {
			t.Errorf("%s: %v, %v, want %v", tt.name, have, err, tt.want)
		}
	}
	broken := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}}
	if have, err := netpolicy.Selecting(pod("shop", "web", false), ingress, []networkingv1.NetworkPolicy{policy("shop", "x", broken)}); err == nil {
		t.Errorf("a selector with an unknown operator selects %v", have)
	}
}

// TestRead reads policies from an API: by address, pod and Service, with and without Cilium.
func TestRead(t *testing.T) {
	t.Parallel()
	api, c := fakeapi.New(t, "g1")
	api.Kinds["networking.k8s.io/v1"] = []fakeapi.Resource{{Name: "networkpolicies", Kind: "NetworkPolicy", Namespaced: true}}
	pod := fakeapi.Object("Pod", "shop", "web-0", map[string]any{"status": map[string]any{"podIP": "10.7.0.9"}})
	pod["metadata"].(map[string]any)["labels"] = map[string]any{"app": "web"}
	api.Objects["/api/v1/namespaces/shop/pods/web-0"] = pod
	api.Objects["/api/v1/pods/web-0"] = pod // of the list in all namespaces
	api.Objects["/api/v1/namespaces/shop/services/web"] = fakeapi.Object("Service", "shop", "web", map[string]any{"spec": map[string]any{"selector": map[string]any{"app": "web"}}})
	api.Objects["/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies/only"] = fakeapi.Object("NetworkPolicy", "shop", "only", map[string]any{
		"spec": map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": "web"}}}})
	const want = "NetworkPolicy shop/only selects pod shop/web-0 (Ingress)"
	check := func(what string, want []string, have []string, err error) {
		t.Helper()
		if err != nil || !slices.Equal(have, want) {
			t.Errorf("%s: %q, %v, want %q", what, have, err, want)
		}
	}
	have, err := netpolicy.OfAddr(t.Context(), c, netip.MustParseAddr("10.7.0.9"), ingress)
	check("address", []string{want}, have, err)
	have, err = netpolicy.OfAddr(t.Context(), c, netip.MustParseAddr("10.7.0.8"), ingress)
	check("address of no pod", nil, have, err)
	have, err = netpolicy.OfPod(t.Context(), c, "shop", "web-0", ingress)
	check("pod", []string{want}, have, err)
	have, err = netpolicy.OfPod(t.Context(), c, "shop", "web-0", egress)
	check("egress", nil, have, err)
	have, err = netpolicy.OfPod(t.Context(), c, "shop", "web-1", ingress)
	check("no pod", nil, have, err)
	have, err = netpolicy.OfService(t.Context(), c, "shop", "web")
	check("Service", []string{want}, have, err)

	api, c = fakeapi.New(t, "g2")
	api.Kinds["cilium.io/v2"] = []fakeapi.Resource{{Name: "ciliumnetworkpolicies", Kind: "CiliumNetworkPolicy", Namespaced: true}}
	api.Objects["/api/v1/namespaces/shop/pods/web-0"] = pod
	api.Objects["/apis/cilium.io/v2/namespaces/shop/ciliumnetworkpolicies/l7"] = fakeapi.Object("CiliumNetworkPolicy", "shop", "l7", nil)
	have, err = netpolicy.OfPod(t.Context(), c, "shop", "web-0", ingress)
	check("Cilium", []string{"CiliumNetworkPolicy shop/l7 is in the namespace of pod web-0"}, have, err)
}
