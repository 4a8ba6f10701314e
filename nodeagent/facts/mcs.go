package facts

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hawser.dev/hawser/nodeagent/mcs"
)

const mcsGroup = "multicluster.x-k8s.io"

// ManagedBy with the value Manager is the label of objects that are Hawser's.
const (
	ManagedBy = "app.kubernetes.io/managed-by"
	Manager   = "hawser"
)

// ServiceExport is as much of multicluster.x-k8s.io ServiceExport as we read.
type ServiceExport struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ExportedLabels      map[string]string `json:"exportedLabels,omitempty"`
		ExportedAnnotations map[string]string `json:"exportedAnnotations,omitempty"`
	} `json:"spec,omitzero"`
	Status struct {
		Conditions []ExportCondition `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

// ExportCondition is as much of a condition as we read.
type ExportCondition struct {
	Type    string `json:"type"`
	Message string `json:"message,omitempty"`
}

// ServiceImport is as much of multicluster.x-k8s.io ServiceImport as we read.
// v1alpha1 and v1beta1 have the same fields.
type ServiceImport struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Type                  string                        `json:"type,omitempty"`
		IPs                   []string                      `json:"ips,omitempty"`
		IPFamilies            []corev1.IPFamily             `json:"ipFamilies,omitempty"`
		Ports                 []mcs.Port                    `json:"ports,omitempty"`
		SessionAffinity       corev1.ServiceAffinity        `json:"sessionAffinity,omitempty"`
		SessionAffinityConfig *corev1.SessionAffinityConfig `json:"sessionAffinityConfig,omitempty"`
		InternalTrafficPolicy string                        `json:"internalTrafficPolicy,omitempty"`
		TrafficDistribution   string                        `json:"trafficDistribution,omitempty"`
	} `json:"spec,omitzero"`
	Status struct {
		Clusters []struct {
			Cluster string `json:"cluster"`
		} `json:"clusters,omitempty"`
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

func fromExport(e *ServiceExport) mcs.Export {
	out := mcs.Export{
		Namespace: e.Namespace, Name: e.Name, UID: string(e.UID), Generation: e.Generation,
		Created: e.CreationTimestamp.UTC(),
		Labels:  e.Spec.ExportedLabels, Annotations: e.Spec.ExportedAnnotations,
	}
	out.Addrs, out.Hosts = mcs.ReadAddresses(e.Annotations[mcs.AddressesAnnotation])
	for _, c := range e.Status.Conditions {
		out.Vouched = out.Vouched || c.Type == mcs.Ready && out.Vouches(c.Message)
	}
	return out
}

func fromImport(i *ServiceImport) mcs.Import {
	out := mcs.Import{
		Namespace: i.Namespace, Name: i.Name, Created: i.CreationTimestamp.UTC(),
		Type: i.Spec.Type, IPs: onePerFamily(i.Spec.IPs), Families: families(i.Spec.IPFamilies), Ports: i.Spec.Ports,
		Affinity: affinity(i.Spec.SessionAffinity), AffinitySeconds: affinitySeconds(i.Spec.SessionAffinityConfig),
		InternalTrafficPolicy: i.Spec.InternalTrafficPolicy, TrafficDistribution: i.Spec.TrafficDistribution,
		Labels: maps.Clone(i.Labels), Annotations: i.Annotations,
	}
	delete(out.Labels, ManagedBy)
	for n := range out.Ports {
		out.Ports[n].Protocol = cmp.Or(out.Ports[n].Protocol, "TCP")
	}
	for _, c := range i.Status.Clusters {
		out.Clusters = append(out.Clusters, c.Cluster)
	}
	slices.Sort(out.Clusters)
	for _, c := range i.Status.Conditions {
		out.Conditions = append(out.Conditions, mcs.Condition{
			Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message,
		})
	}
	return out
}

// offered is what an import would take from a Service.
func offered(s *corev1.Service) *mcs.Service {
	out := &mcs.Service{
		Type:     cmp.Or(string(s.Spec.Type), string(corev1.ServiceTypeClusterIP)),
		Headless: s.Spec.ClusterIP == corev1.ClusterIPNone,
		Families: families(s.Spec.IPFamilies),
		Affinity: affinity(s.Spec.SessionAffinity), AffinitySeconds: affinitySeconds(s.Spec.SessionAffinityConfig),
		InternalTrafficPolicy: optional(s.Spec.InternalTrafficPolicy), TrafficDistribution: optional(s.Spec.TrafficDistribution),
	}
	if len(out.Families) == 0 {
		for _, addr := range onePerFamily(append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...)) {
			out.Families = append(out.Families, familyOf(addr))
		}
	}
	for _, p := range s.Spec.Ports {
		out.Ports = append(out.Ports, mcs.Port{
			Name: p.Name, Protocol: cmp.Or(string(p.Protocol), "TCP"), Port: int(p.Port), AppProtocol: optional(p.AppProtocol),
		})
	}
	return out
}

func families(list []corev1.IPFamily) []int {
	var out []int
	for _, f := range list {
		switch f {
		case corev1.IPv4Protocol:
			out = append(out, 4)
		case corev1.IPv6Protocol:
			out = append(out, 6)
		}
	}
	return out
}

func familyOf(addr netip.Addr) int {
	if addr.Is4() {
		return 4
	}
	return 6
}

func affinity(a corev1.ServiceAffinity) string {
	if a == corev1.ServiceAffinityClientIP {
		return string(a)
	}
	return ""
}

func affinitySeconds(c *corev1.SessionAffinityConfig) int {
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return 0
	}
	return int(*c.ClientIP.TimeoutSeconds)
}

// optional gives an optional string, such as those of Kubernetes' own types.
func optional[S ~string](s *S) string {
	if s == nil {
		return ""
	}
	return string(*s)
}
