package facts

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/schema/fabric"
)

func fromExport(e *mcsv1.ServiceExport) mcs.Export {
	out := mcs.Export{
		Namespace: e.Namespace, Name: e.Name, UID: string(e.UID), Generation: e.Generation,
		Created:  e.CreationTimestamp.UTC(),
		Rendered: e.Labels[fabric.PartOfLabel] == fabric.ManagedByValue,
		Labels:   e.Spec.ExportedLabels, Annotations: e.Spec.ExportedAnnotations,
	}
	out.Addrs, out.Hosts = mcs.ParseAddresses(e.Annotations[mcs.AddressesAnnotation])
	for _, c := range e.Status.Conditions {
		out.AddressesConfirmed = out.AddressesConfirmed || c.Type == mcs.Ready && out.ConfirmsAddresses(c.Message)
	}
	return out
}

func fromImport(i *mcsv1.ServiceImport) mcs.Import {
	out := mcs.Import{
		Namespace: i.Namespace, Name: i.Name, Created: i.CreationTimestamp.UTC(),
		Type: string(i.Spec.Type), IPs: onePerFamily(i.Spec.IPs), Families: families(i.Spec.IPFamilies),
		Affinity: affinity(i.Spec.SessionAffinity), AffinitySeconds: affinitySeconds(i.Spec.SessionAffinityConfig),
		InternalTrafficPolicy: optional(i.Spec.InternalTrafficPolicy), TrafficDistribution: optional(i.Spec.TrafficDistribution),
		Labels: maps.Clone(i.Labels), Annotations: i.Annotations,
	}
	delete(out.Labels, fabric.ManagedByLabel)
	for _, p := range i.Spec.Ports {
		out.Ports = append(out.Ports, mcs.Port{
			Name: p.Name, Protocol: cmp.Or(string(p.Protocol), "TCP"), Port: int(p.Port), AppProtocol: optional(p.AppProtocol),
		})
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

// exportedSpec returns the part of a Service that an import uses.
func exportedSpec(s *corev1.Service) *mcs.Service {
	out := &mcs.Service{
		Type:     cmp.Or(string(s.Spec.Type), string(corev1.ServiceTypeClusterIP)),
		Headless: s.Spec.ClusterIP == corev1.ClusterIPNone,
		Families: families(s.Spec.IPFamilies),
		Affinity: affinity(s.Spec.SessionAffinity), AffinitySeconds: affinitySeconds(s.Spec.SessionAffinityConfig),
		InternalTrafficPolicy: optional(s.Spec.InternalTrafficPolicy), TrafficDistribution: optional(s.Spec.TrafficDistribution),
	}
	if len(out.Families) == 0 {
		for _, addr := range onePerFamily(append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...)) {
			out.Families = append(out.Families, fabric.Family(addr))
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

// optional returns the text of an optional field, empty if nil.
func optional[S ~string](s *S) string {
	if s == nil {
		return ""
	}
	return string(*s)
}
