package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/internal/sortedmap"
	"hawser.dev/hawser/nodeagent/cluster/facts"
	"hawser.dev/hawser/nodeagent/cluster/listwatch"
)

// transform leaves of an object what facts are made of, as most of its bytes are not.
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
			kept := discoveryv1.Endpoint{
				Addresses: e.Addresses, Conditions: discoveryv1.EndpointConditions{Ready: e.Conditions.Ready},
				Hostname: e.Hostname, NodeName: e.NodeName,
			}
			if e.TargetRef != nil {
				kept.TargetRef = &corev1.ObjectReference{Kind: e.TargetRef.Kind, Name: e.TargetRef.Name}
			}
			out.Endpoints[i] = kept
		}
		return out
	case *unstructured.Unstructured:
		if o.GetKind() == hawserNodeKind {
			return trimReport(o)
		}
		// An object of the Multi-Cluster Services API that cannot be read stays as it is, and
		// counts as none.
		var out metav1.Object = &mcsv1.ServiceExport{}
		if o.GetKind() == mcsv1.ServiceImportKindName {
			out = &mcsv1.ServiceImport{}
		}
		listwatch.TrimManagedFields(o, FieldManager)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out); err != nil {
			return o
		}
		return out
	}
	return object
}

// hawserNodeKind is the kind of HawserNodes.
const hawserNodeKind = "HawserNode"

// trimReport leaves of a HawserNode the boot in which its agent reported its rules.
func trimReport(o *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{rulesBootID: reportOf(o)}}}
	out.SetName(o.GetName())
	out.SetKind(hawserNodeKind)
	out.SetResourceVersion(o.GetResourceVersion())
	return out
}

// rulesBootID is the field of NodeStatus.RulesBootID.
const rulesBootID = "rulesBootID"

func reportOf(o *unstructured.Unstructured) string {
	boot, _, err := unstructured.NestedString(o.Object, "status", rulesBootID)
	if err != nil {
		return "" // what does not fit its own schema the API server does not admit
	}
	return boot
}

// readiness keeps whether a node is ready, and not since when.
func readiness(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	for _, c := range conditions {
		if c.Type == corev1.NodeReady {
			return []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return nil
}

// ofNode keeps of a node's labels and condition what picks gateways, where something does.
func ofNode(node *corev1.Node, keys []string) *corev1.Node {
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

// eventHandler takes the objects of one watch. Each function reports whether facts changed.
type eventHandler struct {
	onUpdate func(object any) bool
	onDelete func(key string) bool
	retain   func(wanted func(key string) bool) bool
	onSynced func() bool // all objects came; nil = nobody waits for that
}

// handlerFor makes the sink of a scope.
func (s *Source) handlerFor(w scope) eventHandler {
	t := s.table
	switch w.resource {
	case nodes:
		var keys []string
		if w.names != "" {
			keys = strings.Split(w.names, ",")
		}
		return eventHandler{onUpdate: func(o any) bool { return t.PutNode(ofNode(o.(*corev1.Node), keys)) }, onDelete: t.DropNode, retain: t.KeepNodes}
	case namespaces:
		return eventHandler{onUpdate: func(o any) bool { return t.PutNamespace(o.(*corev1.Namespace).Name) }, onDelete: t.DropNamespace, retain: t.KeepNamespaces}
	case pods:
		var out []labels.Selector
		for rule := range strings.SplitSeq(w.rules, "\n") {
			if selector, err := labels.Parse(rule); err == nil {
				out = append(out, selector)
			}
		}
		return eventHandler{onUpdate: podFilter(t, out), onDelete: t.DropPod, retain: t.KeepPods}
	case serviceExports:
		return both(&s.exports, t.PutExport, t.DropExport, t.KeepExports)
	case serviceImports:
		return both(&s.imports, t.PutImport, t.DropImport, t.KeepImports)
	case hawserNodes:
		// A HawserNode that is deleted ends no report: the rules are still in the kernel.
		return eventHandler{
			onUpdate: func(o any) bool {
				report := o.(*unstructured.Unstructured)
				return t.PutReport(report.GetName(), reportOf(report))
			},
			onDelete: func(string) bool { return false },
			retain:   func(func(string) bool) bool { return false },
			onSynced: t.HaveReports,
		}
	case services:
		return s.area(w).serviceHandler()
	}
	return s.area(w).sliceHandler()
}

// both keeps objects as they are besides making facts of them. Who reads the objects wants to
// know of every change.
func both[T any](as *sortedmap.Map[T], take func(T) bool, lose func(string) bool, keep func(func(string) bool) bool) eventHandler {
	return eventHandler{
		onUpdate: func(object any) bool {
			o, ok := object.(T) // what does not fit its own schema the API server does not admit
			if !ok {
				return false
			}
			changed := as.Put(keyOf(o), o)
			return take(o) || changed
		},
		onDelete: func(key string) bool {
			changed := as.Delete(key)
			return lose(key) || changed
		},
		retain: func(wanted func(string) bool) bool {
			changed := as.Retain(wanted)
			return keep(wanted) || changed
		},
	}
}

// podFilter takes the pods that some rule selects.
func podFilter(t *facts.Index, rules []labels.Selector) func(object any) bool {
	return func(object any) bool {
		pod := object.(*corev1.Pod)
		for _, rule := range rules {
			if rule.Matches(labels.Set(pod.Labels)) {
				return t.PutPod(pod)
			}
		}
		return t.DropPod(keyOf(pod))
	}
}
