package facts

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"hawser.dev/hawser/nodeagent/model"
)

// FromObjects converts Kubernetes objects to facts. It is pure. The order of the objects does not
// matter, except that the last of several objects with the same name wins.
func FromObjects(objects Objects) model.Facts {
	t := NewIndex(nil)
	t.noReports = objects.HawserNodes == nil
	for i := range objects.Nodes {
		t.PutNode(&objects.Nodes[i])
	}
	for i := range objects.Pods {
		t.PutPod(&objects.Pods[i])
	}
	for i := range objects.Namespaces {
		t.PutNamespace(objects.Namespaces[i].Name)
	}
	for i := range objects.Exports {
		t.PutExport(&objects.Exports[i])
		t.PutService(objects.Exports[i].Namespace, objects.Exports[i].Name, nil, nil)
	}
	for i := range objects.Imports {
		t.PutImport(&objects.Imports[i])
	}
	slicesOf := map[string][]*discoveryv1.EndpointSlice{}
	for _, slice := range latest(objects.EndpointSlices, func(s *discoveryv1.EndpointSlice) string { return s.Namespace + "/" + s.Name }) {
		service := slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]
		slicesOf[service] = append(slicesOf[service], slice)
	}
	for i := range objects.Services {
		s := &objects.Services[i]
		t.PutService(s.Namespace, s.Name, s, slicesOf[s.Namespace+"/"+s.Name])
	}
	for i := range objects.HawserNodes {
		t.PutReport(objects.HawserNodes[i].Name, objects.HawserNodes[i].Status.RulesBootID)
	}
	t.ReportsSynced()
	return t.Facts()
}

// latest returns the last object of each key, sorted by key.
func latest[T any](objects []T, key func(*T) string) []*T {
	byKey := make(map[string]*T, len(objects))
	for i := range objects {
		byKey[key(&objects[i])] = &objects[i]
	}
	out := make([]*T, 0, len(byKey))
	for _, k := range slices.Sorted(maps.Keys(byKey)) {
		out = append(out, byKey[k])
	}
	return out
}

func fromNode(node *corev1.Node) model.Node {
	out := model.Node{Name: node.Name, Labels: node.Labels, UnavailableReason: unavailableReason(node)}
	of := func(sort corev1.NodeAddressType) []netip.Addr {
		var addrs []string
		for _, a := range node.Status.Addresses {
			if a.Type == sort {
				addrs = append(addrs, a.Address)
			}
		}
		return onePerFamily(addrs)
	}
	out.Addrs, out.External = of(corev1.NodeInternalIP), of(corev1.NodeExternalIP)
	cidrs := node.Spec.PodCIDRs
	if len(cidrs) == 0 && node.Spec.PodCIDR != "" {
		cidrs = []string{node.Spec.PodCIDR}
	}
	for _, text := range cidrs {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			out.PodCIDRs = append(out.PodCIDRs, prefix.Masked())
		}
	}
	slices.SortFunc(out.PodCIDRs, netip.Prefix.Compare)
	return out
}

// unavailableReason returns the reason why a node should not be a gateway, empty if it may be one.
// A node without a Ready condition counts as ready: nodes in files often have no conditions.
func unavailableReason(node *corev1.Node) string {
	if node.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	if node.Spec.Unschedulable {
		return "it is cordoned"
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return "it is not ready"
		}
	}
	return ""
}

// fromPod converts a pod. It returns false for a pod without an address, and for an ended pod,
// whose addresses may belong to another pod.
func fromPod(pod *corev1.Pod) (model.Pod, bool) {
	completed := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	addrs := make([]string, 0, 1+len(pod.Status.PodIPs))
	for _, ip := range pod.Status.PodIPs {
		addrs = append(addrs, ip.IP)
	}
	if len(addrs) == 0 {
		addrs = append(addrs, pod.Status.PodIP)
	}
	out := model.Pod{
		Namespace:   pod.Namespace,
		Name:        pod.Name,
		Node:        pod.Spec.NodeName,
		Labels:      pod.Labels,
		Addrs:       onePerFamily(addrs),
		HostNetwork: pod.Spec.HostNetwork,
	}
	return out, !completed && len(out.Addrs) > 0
}

// onePerFamily parses addresses and returns the first of each family, IPv4 first. It skips invalid
// addresses, which the API server does not admit.
func onePerFamily(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		addr = addr.Unmap()
		if !slices.ContainsFunc(out, func(a netip.Addr) bool { return a.Is4() == addr.Is4() }) {
			out = append(out, addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func fromService(service *corev1.Service, endpoints []*discoveryv1.EndpointSlice) model.Service {
	out := model.Service{Namespace: service.Namespace, Name: service.Name}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		out.ExternalName = true
		return out
	}
	ips := service.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{service.Spec.ClusterIP}
	}
	out.ClusterIPs = onePerFamily(ips) // "None" does not parse
	numbers := map[string]string{}
	for _, port := range service.Spec.Ports {
		protocol := cmp.Or(string(port.Protocol), "TCP")
		if protocol != "TCP" && protocol != "UDP" {
			out.Unsupported = append(out.Unsupported, fmt.Sprintf("port %d/%s: only TCP and UDP are supported", port.Port, protocol))
			continue
		}
		out.Ports = append(out.Ports, model.ServicePort{Name: port.Name, Protocol: protocol, Port: int(port.Port)})
		numbers[protocol+"/"+port.Name] = protocol + "/" + strconv.Itoa(int(port.Port))
	}
	slices.SortFunc(out.Ports, func(a, b model.ServicePort) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Name, b.Name))
	})
	var unsupported []string
	out.Endpoints, unsupported = fromSlices(endpoints, numbers)
	if service.Spec.InternalTrafficPolicy != nil && *service.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal {
		unsupported = append(unsupported, "internalTrafficPolicy Local: callers reach endpoints on all nodes")
	}
	out.Unsupported = append(out.Unsupported, unsupported...)
	slices.Sort(out.Unsupported)
	for _, at := range service.Status.LoadBalancer.Ingress {
		if to := cmp.Or(at.IP, at.Hostname); to != "" {
			out.LoadBalancers = append(out.LoadBalancers, to)
		}
	}
	return out
}
