//go:build kube

package mcs

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func mcsKind(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1beta1", Resource: resource}
}

// Labels of the slices of imports (KEP-1645).
const (
	labelService = "multicluster.kubernetes.io/service-name"
	labelSource  = "multicluster.kubernetes.io/source-cluster"
)

// serviceImport is what the tests read of a ServiceImport v1beta1.
type serviceImport struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Type                  string                        `json:"type"`
		Ports                 []importPort                  `json:"ports"`
		IPs                   []string                      `json:"ips"`
		IPFamilies            []corev1.IPFamily             `json:"ipFamilies"`
		SessionAffinity       corev1.ServiceAffinity        `json:"sessionAffinity"`
		SessionAffinityConfig *corev1.SessionAffinityConfig `json:"sessionAffinityConfig"`
		InternalTrafficPolicy *string                       `json:"internalTrafficPolicy"`
		TrafficDistribution   *string                       `json:"trafficDistribution"`
	} `json:"spec"`
}

type importPort struct {
	Name        string `json:"name"`
	Protocol    string `json:"protocol"`
	AppProtocol string `json:"appProtocol"`
	Port        int32  `json:"port"`
}

// exporting is what a ServiceExport says beside its name.
type exporting struct {
	labels, annotations map[string]string
}

func (b *bed) export(c *cluster, e exporting) {
	b.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceExport",
		"metadata": map[string]any{
			"name": "hello", "labels": map[string]any{"dummy-svcexport": "dummy"}, "annotations": map[string]any{"dummy-svcexport": "dummy"},
		},
		"spec": map[string]any{},
	}}
	for field, values := range map[string]map[string]string{"exportedLabels": e.labels, "exportedAnnotations": e.annotations} {
		if values != nil {
			b.must(unstructured.SetNestedStringMap(object.Object, values, "spec", field))
		}
	}
	_, err := c.dyn.Resource(mcsKind("serviceexports")).Namespace(b.ns).Create(b.ctx, object, metav1.CreateOptions{})
	b.must(err)
}

func (b *bed) unexport(c *cluster) {
	b.Helper()
	b.must(c.dyn.Resource(mcsKind("serviceexports")).Namespace(b.ns).Delete(b.ctx, "hello", metav1.DeleteOptions{}))
}

// exportBoth exports first from one cluster and, when that is imported and older
// by a second, from the other.
func (b *bed) exportBoth(first, second *cluster, one, other *corev1.Service, e, f exporting) {
	b.Helper()
	b.deploy(first, one, 1)
	b.export(first, e)
	b.imported(first, func(serviceImport) error { return nil })
	b.pause(createdApart)
	b.deploy(second, other, 1)
	b.export(second, f)
}

func (b *bed) find(c *cluster) (serviceImport, error) {
	var found serviceImport
	object, err := c.dyn.Resource(mcsKind("serviceimports")).Namespace(b.ns).Get(b.ctx, "hello", metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &found)
	}
	return found, err
}

// imported waits for an import of which check says nothing wrong.
func (b *bed) imported(c *cluster, check func(serviceImport) error) serviceImport {
	b.Helper()
	var found serviceImport
	b.eventually(importTime, "the import of "+c.name, func() (err error) {
		if found, err = b.find(c); err != nil {
			return err
		}
		return check(found)
	})
	return found
}

func (b *bed) importGone(c *cluster) {
	b.Helper()
	b.eventually(importTime, "the import of "+c.name+" goes", func() error {
		if _, err := b.find(c); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there (%v)", err)
		}
		return nil
	})
}

// condition waits until the ServiceExport of a cluster has a condition of a status.
func (b *bed) condition(c *cluster, kind string, status metav1.ConditionStatus) metav1.Condition {
	b.Helper()
	var found metav1.Condition
	b.eventually(importTime, fmt.Sprintf("condition %s=%s of %s", kind, status, c.name), func() error {
		object, err := c.dyn.Resource(mcsKind("serviceexports")).Namespace(b.ns).Get(b.ctx, "hello", metav1.GetOptions{})
		if err != nil {
			return err
		}
		var export struct {
			Status struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"status"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &export); err != nil {
			return err
		}
		for _, found = range export.Status.Conditions {
			if found.Type == kind && found.Status == status {
				return nil
			}
		}
		return fmt.Errorf("it has %v", export.Status.Conditions)
	})
	if found.Reason == "" || found.LastTransitionTime.IsZero() {
		b.Errorf("condition %s of %s lacks a reason or a time: %v", kind, c.name, found)
	}
	return found
}

// sliced waits for a slice of the import in a family of which check says nothing wrong.
func (b *bed) sliced(c *cluster, family discoveryv1.AddressType, check func(discoveryv1.EndpointSlice) error) discoveryv1.EndpointSlice {
	b.Helper()
	var found discoveryv1.EndpointSlice
	b.eventually(sliceTime, fmt.Sprintf("a slice of the import in %s on %s", family, c.name), func() error {
		list, err := c.kube.DiscoveryV1().EndpointSlices(b.ns).List(b.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		err = fmt.Errorf("none of %d slices", len(list.Items))
		for _, found = range list.Items {
			if found.AddressType == family && (found.Labels[labelService] != "" || found.Labels[labelSource] != "") {
				if err = check(found); err == nil {
					return nil
				}
			}
		}
		return err
	})
	return found
}

// podEndpoint is one endpoint of the service in its own cluster.
type podEndpoint struct{ addr, host string }

// endpoints waits until the service of a cluster has so many ready endpoints.
func (b *bed) endpoints(c *cluster, family discoveryv1.AddressType, count int) []podEndpoint {
	b.Helper()
	var out []podEndpoint
	b.eventually(podTime, "the endpoints of "+c.name, func() error {
		out = nil
		list, err := c.kube.DiscoveryV1().EndpointSlices(b.ns).List(b.ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=hello"})
		if err != nil {
			return err
		}
		for _, slice := range list.Items {
			if slice.AddressType != family {
				continue
			}
			for _, e := range slice.Endpoints {
				if e.Conditions.Ready != nil && !*e.Conditions.Ready {
					return fmt.Errorf("%v is not ready", e.Addresses)
				}
				for _, addr := range e.Addresses {
					host := strings.NewReplacer(".", "-", ":", "-").Replace(addr)
					if e.Hostname != nil {
						host = *e.Hostname
					}
					out = append(out, podEndpoint{addr, host})
				}
			}
		}
		if len(out) != count {
			return fmt.Errorf("%d of %d", len(out), count)
		}
		return nil
	})
	return out
}

// families are those of the clusters under test, as the service got them.
func (b *bed) families(c *cluster) []discoveryv1.AddressType {
	b.Helper()
	service, err := c.kube.CoreV1().Services(b.ns).Get(b.ctx, "hello", metav1.GetOptions{})
	b.must(err)
	var out []discoveryv1.AddressType
	for _, f := range service.Spec.IPFamilies {
		out = append(out, discoveryv1.AddressType(f))
	}
	return out
}

// podIP waits for the address of the one pod behind the service.
func (b *bed) podIP(c *cluster) string {
	b.Helper()
	var out string
	b.eventually(podTime, "the pod of "+c.name, func() error {
		list, err := c.kube.CoreV1().Pods(b.ns).List(b.ctx, metav1.ListOptions{LabelSelector: "app=hello"})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Status.PodIP == "" {
			return fmt.Errorf("%d pods, or without address", len(list.Items))
		}
		out = list.Items[0].Status.PodIP
		return nil
	})
	return out
}
