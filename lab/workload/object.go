// Package workload has the Kubernetes objects of a lab's users. It implements the parts of
// Kubernetes' controllers that the lab needs: its input are manifests, its output are pods and
// endpoints. Except for reading files it is pure.
package workload

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceExport exports a Service to the other clusters (MCS API, KEP-1645;
// multicluster.x-k8s.io/v1alpha1 and v1beta1, which are equal).
type ServiceExport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              map[string]any `json:"spec,omitempty"`
}

// Key identifies an object within its cluster.
type Key struct {
	Kind      string
	Namespace string // empty for a Namespace
	Name      string
}

// String returns namespace/Kind/name, which the lab's commands accept.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + "/" + k.Name
	}
	return k.Namespace + "/" + k.Kind + "/" + k.Name
}

// Object is one manifest. Exactly one of the pointers is set.
type Object struct {
	Key         Key
	Namespace   *corev1.Namespace
	Pod         *corev1.Pod
	Deployment  *appsv1.Deployment
	StatefulSet *appsv1.StatefulSet
	Service     *corev1.Service
	Export      *ServiceExport
}

// kind is one kind of manifest that the lab supports.
type kind struct {
	apiVersion string
	name       string
	cluster    bool // cluster-scoped
}

func kinds() []kind {
	return []kind{
		{"v1", "Namespace", true},
		{"v1", "Pod", false},
		{"apps/v1", "Deployment", false},
		{"apps/v1", "StatefulSet", false},
		{"v1", "Service", false},
		{"multicluster.x-k8s.io/v1beta1", "ServiceExport", false},
		{"multicluster.x-k8s.io/v1alpha1", "ServiceExport", false},
	}
}

// ParseKind returns the kind as Kubernetes spells it. It ignores case and a plural s.
func ParseKind(text string) (string, error) {
	var names []string
	for _, k := range kinds() {
		if strings.EqualFold(text, k.name) || strings.EqualFold(text, k.name+"s") {
			return k.name, nil
		}
		names = append(names, k.name)
	}
	return "", fmt.Errorf("unknown kind %q: the lab runs %s", text, strings.Join(names, ", "))
}

// body returns the target for decoding the manifest.
func (o *Object) body() any {
	switch o.Key.Kind {
	case "Namespace":
		o.Namespace = &corev1.Namespace{}
		return o.Namespace
	case "Pod":
		o.Pod = &corev1.Pod{}
		return o.Pod
	case "Deployment":
		o.Deployment = &appsv1.Deployment{}
		return o.Deployment
	case "StatefulSet":
		o.StatefulSet = &appsv1.StatefulSet{}
		return o.StatefulSet
	case "Service":
		o.Service = &corev1.Service{}
		return o.Service
	default:
		o.Export = &ServiceExport{}
		return o.Export
	}
}

// content returns the manifest for encoding.
func (o *Object) content() any {
	switch {
	case o.Namespace != nil:
		return o.Namespace
	case o.Pod != nil:
		return o.Pod
	case o.Deployment != nil:
		return o.Deployment
	case o.StatefulSet != nil:
		return o.StatefulSet
	case o.Service != nil:
		return o.Service
	default:
		return o.Export
	}
}

func (o *Object) meta() *metav1.ObjectMeta {
	switch {
	case o.Namespace != nil:
		return &o.Namespace.ObjectMeta
	case o.Pod != nil:
		return &o.Pod.ObjectMeta
	case o.Deployment != nil:
		return &o.Deployment.ObjectMeta
	case o.StatefulSet != nil:
		return &o.StatefulSet.ObjectMeta
	case o.Service != nil:
		return &o.Service.ObjectMeta
	default:
		return &o.Export.ObjectMeta
	}
}
