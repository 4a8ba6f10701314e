package kube

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/nodeagent/cluster/listwatch"
	"hawser.dev/hawser/schema/fabric"
)

// transform returns an object with only the fields that facts use, a small part of its bytes.
// It is idempotent: the reflector transforms the objects of a streamed list twice.
func transform(object any) any {
	switch o := object.(type) {
	case *corev1.Node:
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: o.Labels, DeletionTimestamp: o.DeletionTimestamp},
			Spec:       corev1.NodeSpec{PodCIDR: o.Spec.PodCIDR, PodCIDRs: o.Spec.PodCIDRs, Unschedulable: o.Spec.Unschedulable},
			Status: corev1.NodeStatus{
				Addresses: o.Status.Addresses, Conditions: readiness(o.Status.Conditions),
				NodeInfo: corev1.NodeSystemInfo{BootID: o.Status.NodeInfo.BootID},
			},
		}
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}
	case *corev1.Pod:
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, Labels: o.Labels},
			Spec:       corev1.PodSpec{NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork},
			Status:     corev1.PodStatus{Phase: o.Status.Phase, PodIP: o.Status.PodIP, PodIPs: o.Status.PodIPs},
		}
	case *corev1.Service:
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}, Spec: o.Spec,
			Status: corev1.ServiceStatus{LoadBalancer: o.Status.LoadBalancer},
		}
	case *discoveryv1.EndpointSlice:
		out := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: o.Namespace, Name: o.Name,
				Labels: map[string]string{discoveryv1.LabelServiceName: o.Labels[discoveryv1.LabelServiceName]},
			},
			AddressType: o.AddressType,
			Ports:       o.Ports,
			Endpoints:   make([]discoveryv1.Endpoint, len(o.Endpoints)),
		}
		for i, e := range o.Endpoints {
			trimmed := discoveryv1.Endpoint{
				Addresses: e.Addresses, Conditions: e.Conditions,
				Hostname: e.Hostname, NodeName: e.NodeName,
			}
			if e.TargetRef != nil {
				trimmed.TargetRef = &corev1.ObjectReference{Kind: e.TargetRef.Kind, Name: e.TargetRef.Name}
			}
			out.Endpoints[i] = trimmed
		}
		return out
	case *unstructured.Unstructured:
		if o.GetKind() == hawserNodeKind {
			return trimHawserNode(o)
		}
		// An object of the Multi-Cluster Services API that does not decode stays
		// unstructured, and the watch ignores it.
		var out metav1.Object = &mcsv1.ServiceExport{}
		if o.GetKind() == mcsv1.ServiceImportKindName {
			out = &mcsv1.ServiceImport{}
		}
		listwatch.TrimManagedFields(o, fabric.FieldManager)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out); err != nil {
			return o
		}
		return out
	}
	return object
}

// hawserNodeKind is the kind of HawserNodes.
const hawserNodeKind = "HawserNode"

// trimHawserNode returns a HawserNode with only the boot in which its agent reported its rules.
func trimHawserNode(o *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{rulesBootID: rulesBootIDOf(o)}}}
	out.SetName(o.GetName())
	out.SetKind(hawserNodeKind)
	out.SetResourceVersion(o.GetResourceVersion())
	return out
}

// rulesBootID is the JSON name of NodeStatus.RulesBootID.
const rulesBootID = "rulesBootID"

func rulesBootIDOf(o *unstructured.Unstructured) string {
	boot, _, err := unstructured.NestedString(o.Object, "status", rulesBootID)
	if err != nil {
		return "" // the API server admits no object that violates its schema
	}
	return boot
}

// readiness returns the Ready condition of a node without its times.
func readiness(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	for _, c := range conditions {
		if c.Type == corev1.NodeReady {
			return []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return nil
}

// trimNode returns a node with only the labels and the state that select gateways. keys are the
// label keys of all node selectors. Without keys, the cluster selects no gateway by labels.
func trimNode(node *corev1.Node, keys []string) *corev1.Node {
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}, Spec: node.Spec, Status: node.Status}
	if len(keys) == 0 {
		out.Spec.Unschedulable, out.Status.Conditions = false, nil
		return out
	}
	out.DeletionTimestamp = node.DeletionTimestamp
	for _, key := range keys {
		if value, has := node.Labels[key]; has {
			if out.Labels == nil {
				out.Labels = map[string]string{}
			}
			out.Labels[key] = value
		}
	}
	return out
}
