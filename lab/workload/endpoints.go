package workload

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// ServicePort is one port of a service on one of its pods.
type ServicePort struct {
	Name     string
	Protocol string // TCP | UDP
	Port     int    // of the Service
	Target   int    // of the pod
	App      string // appProtocol
}

// Backend is a pod of a Service, with the ports on which it serves the Service.
type Backend struct {
	Pod   *Pod
	Ports []ServicePort
}

// Backends returns the pods that a Service selects, in the order of pods. Like the EndpointSlice
// controller, it omits a named target port that the pod lacks.
func Backends(service *corev1.Service, pods []Pod) []Backend {
	if len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	var out []Backend
	for i := range pods {
		pod := &pods[i]
		if pod.Namespace != service.Namespace || !selects(service.Spec.Selector, pod.Labels) {
			continue
		}
		backend := Backend{Pod: pod}
		for _, port := range service.Spec.Ports {
			protocol := cmp.Or(string(port.Protocol), "TCP")
			if target := targetOf(port, protocol, pod); target != 0 {
				backend.Ports = append(backend.Ports,
					ServicePort{Name: port.Name, Protocol: protocol, Port: int(port.Port), Target: target, App: ptr.Deref(port.AppProtocol, "")})
			}
		}
		out = append(out, backend)
	}
	return out
}

func targetOf(port corev1.ServicePort, protocol string, pod *Pod) int {
	if port.TargetPort.Type == intstr.Int {
		return cmp.Or(port.TargetPort.IntValue(), int(port.Port))
	}
	for _, candidate := range pod.Ports {
		if candidate.Name == port.TargetPort.StrVal && candidate.Protocol == protocol {
			return candidate.Number
		}
	}
	return 0
}
