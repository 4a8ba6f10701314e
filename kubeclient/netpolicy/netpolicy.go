// Package netpolicy finds the NetworkPolicies of a cluster that may drop packets of its pods.
package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hawser.dev/hawser/kubeclient"
)

// Selecting returns the policies that select a pod for a direction, sorted by name. These policies
// drop all packets of that direction that none of their rules allows. Pods in the host network have
// no policies.
func Selecting(pod *corev1.Pod, direction networkingv1.PolicyType, policies []networkingv1.NetworkPolicy) ([]string, error) {
	var out []string
	for i := range policies {
		p := &policies[i]
		if p.Namespace != pod.Namespace || pod.Spec.HostNetwork || !hasDirection(p, direction) {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil {
			return nil, fmt.Errorf("NetworkPolicy %s/%s: podSelector: %w", p.Namespace, p.Name, err)
		}
		if selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, p.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// hasDirection reports whether a policy applies to a direction. Without policyTypes it applies to
// ingress, and also to egress if it has egress rules.
func hasDirection(p *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) bool {
	if len(p.Spec.PolicyTypes) > 0 {
		return slices.Contains(p.Spec.PolicyTypes, direction)
	}
	return direction == networkingv1.PolicyTypeIngress || len(p.Spec.Egress) > 0
}

// OfAddr returns the policies for packets to the pod with an address (ingress), or from it
// (egress). Each result is a phrase. The results are empty if no pod has the address, or if the
// user may not list pods or policies.
func OfAddr(ctx context.Context, c *kubeclient.Client, addr netip.Addr, direction networkingv1.PolicyType) ([]string, error) {
	client, err := c.Resource(kubeclient.PodKind(), "")
	if err != nil {
		return nil, err
	}
	options := metav1.ListOptions{FieldSelector: "status.podIP=" + addr.String()}
	found, err := client.List(ctx, options)
	if err != nil {
		return nil, unlessForbidden(err)
	}
	pods := slices.DeleteFunc(found.Items, func(o unstructured.Unstructured) bool {
		ip, _, _ := unstructured.NestedString(o.Object, "status", "podIP")
		return ip != addr.String()
	})
	return ofPods(ctx, c, pods, direction)
}

// OfPod returns the policies for packets to or from a pod, as OfAddr does.
func OfPod(ctx context.Context, c *kubeclient.Client, namespace, name string, direction networkingv1.PolicyType) ([]string, error) {
	o, err := c.Get(ctx, kubeclient.ID{Version: "v1", Kind: "Pod", Namespace: namespace, Name: name})
	if err != nil || o == nil {
		return nil, unlessForbidden(err)
	}
	return ofPods(ctx, c, []unstructured.Unstructured{*o}, direction)
}

// OfService returns the policies for packets to the pods of a Service, as OfAddr does.
func OfService(ctx context.Context, c *kubeclient.Client, namespace, name string) ([]string, error) {
	o, err := c.Get(ctx, kubeclient.ID{Version: "v1", Kind: "Service", Namespace: namespace, Name: name})
	if err != nil || o == nil {
		return nil, unlessForbidden(err)
	}
	selector, _, err := unstructured.NestedStringMap(o.Object, "spec", "selector")
	if err != nil || len(selector) == 0 {
		return nil, err
	}
	pods, err := c.List(ctx, kubeclient.PodKind(), namespace, labels.SelectorFromSet(selector).String())
	if err != nil {
		return nil, unlessForbidden(err)
	}
	return ofPods(ctx, c, pods, networkingv1.PolicyTypeIngress)
}

// ofPods returns the policies of pods. A policy that selects several of them is listed with the
// first one. CiliumNetworkPolicies of the pods' namespaces are listed without an evaluation of
// their rules.
func ofPods(ctx context.Context, c *kubeclient.Client, pods []unstructured.Unstructured, direction networkingv1.PolicyType) ([]string, error) {
	var out []string
	seen := map[string]bool{} // policies and namespaces
	policies := map[string][]networkingv1.NetworkPolicy{}
	for i := range pods {
		var pod corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pods[i].Object, &pod); err != nil {
			return nil, fmt.Errorf("read pod %s/%s: %w", pods[i].GetNamespace(), pods[i].GetName(), err)
		}
		if policies[pod.Namespace] == nil {
			list, err := inNamespace(ctx, c, pod.Namespace)
			if err != nil {
				return nil, unlessForbidden(err)
			}
			policies[pod.Namespace] = list
		}
		names, err := Selecting(&pod, direction, policies[pod.Namespace])
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if id := pod.Namespace + "/" + name; !seen[id] {
				seen[id] = true
				out = append(out, fmt.Sprintf("NetworkPolicy %s selects pod %s/%s (%s)", id, pod.Namespace, pod.Name, direction))
			}
		}
		if seen[pod.Namespace] || pod.Spec.HostNetwork {
			continue
		}
		seen[pod.Namespace] = true
		cilium, err := c.List(ctx, ciliumKind(), pod.Namespace, "")
		if err != nil && !kerrors.IsForbidden(err) {
			return nil, err
		}
		for j := range cilium {
			out = append(out, fmt.Sprintf("CiliumNetworkPolicy %s/%s is in the namespace of pod %s", pod.Namespace, cilium[j].GetName(), pod.Name))
		}
	}
	return out, nil
}

// inNamespace returns the NetworkPolicies of a namespace. Without an error the result is not nil.
func inNamespace(ctx context.Context, c *kubeclient.Client, namespace string) ([]networkingv1.NetworkPolicy, error) {
	items, err := c.List(ctx, networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), namespace, "")
	out := make([]networkingv1.NetworkPolicy, len(items))
	for i := range items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(items[i].Object, &out[i]); err != nil {
			return nil, fmt.Errorf("read NetworkPolicy %s/%s: %w", namespace, items[i].GetName(), err)
		}
	}
	return out, err
}

func ciliumKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "cilium.io", Version: "v2", Kind: "CiliumNetworkPolicy"}
}

// unlessForbidden returns an error, or nil if the user lacks the right.
func unlessForbidden(err error) error {
	if kerrors.IsForbidden(err) || errors.Is(err, kubeclient.ErrNoKind) {
		return nil
	}
	return err
}
