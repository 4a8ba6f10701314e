package lab

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kyaml "sigs.k8s.io/yaml"

	"hawser.dev/hawser/lab/workload"
)

// facts returns the files that the agents of one cluster read instead of the Kubernetes API. Keys
// are file names, values are streams of objects. boots are the boot IDs of nodes.
func facts(w *desiredLab, c clusterPlan, off map[string]bool, boots map[string]string) (map[string][]byte, error) {
	var nodes, pods, services, endpointSlices, exports []any
	for _, n := range w.nodesOf(c.name) {
		outside := n.wan
		if behind := w.site(n.site); behind != nil && behind.NAT != "" {
			outside = nil // clouds report only a node's own addresses
		}
		nodes = append(nodes, nodeObject(&n, outside, !off[n.id()], boots[n.id()]))
	}
	for i := range c.pods {
		pods = append(pods, podObject(w, &c.pods[i]))
	}
	for _, svc := range c.services {
		services = append(services, serviceObject(svc))
		endpointSlices = append(endpointSlices, sliceObjects(svc)...)
	}
	for _, e := range c.exports {
		exports = append(exports, e)
	}
	files := map[string][]byte{}
	for name, objects := range map[string][]any{
		"nodes.yaml": nodes, "pods.yaml": pods, "services.yaml": services, "endpointslices.yaml": endpointSlices,
		"serviceexports.yaml": exports,
	} {
		var out strings.Builder
		for _, object := range objects {
			raw, err := kyaml.Marshal(object)
			if err != nil {
				return nil, fmt.Errorf("write facts of cluster %s: %w", c.name, err)
			}
			out.WriteString("---\n")
			out.Write(raw)
		}
		files[name] = []byte(out.String())
	}
	return files, nil
}

func condition(ok bool) corev1.ConditionStatus {
	if ok {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// announced returns the pod prefixes of the Node object.
func (n *node) announced() []netip.Prefix {
	if n.overlay {
		return nil
	}
	return n.podCIDRs
}

// allLabels returns the labels of the Node object.
func (n *node) allLabels() map[string]string {
	out := map[string]string{corev1.LabelHostname: n.name}
	maps.Copy(out, n.labels)
	return out
}

func nodeObject(n *node, outside []netip.Addr, up bool, boot string) corev1.Node {
	out := corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: n.allLabels()},
	}
	for _, cidr := range n.announced() {
		out.Spec.PodCIDRs = append(out.Spec.PodCIDRs, cidr.String())
	}
	if len(out.Spec.PodCIDRs) > 0 {
		out.Spec.PodCIDR = out.Spec.PodCIDRs[0]
	}
	for _, addr := range n.lan {
		out.Status.Addresses = append(out.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: addr.String()})
	}
	for _, addr := range outside {
		out.Status.Addresses = append(out.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: addr.String()})
	}
	out.Status.Addresses = append(out.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.name})
	out.Status.NodeInfo.BootID = boot
	out.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: condition(up)}}
	return out
}

func podObject(w *desiredLab, p *pod) corev1.Pod {
	out := corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: p.Annotations},
		Spec:       corev1.PodSpec{NodeName: p.node, HostNetwork: p.HostNetwork, Hostname: p.Hostname, Subdomain: p.Subdomain},
	}
	container := corev1.Container{Name: p.Name, Image: "whereami"}
	for _, port := range p.Ports {
		container.Ports = append(container.Ports,
			corev1.ContainerPort{Name: port.Name, Protocol: corev1.Protocol(port.Protocol), ContainerPort: int32(port.Number)})
	}
	out.Spec.Containers = []corev1.Container{container}
	out.Status.Phase = corev1.PodRunning
	out.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: condition(p.ready)}}
	for i, addr := range p.addrs {
		if i == 0 {
			out.Status.PodIP = addr.String()
		}
		out.Status.PodIPs = append(out.Status.PodIPs, corev1.PodIP{IP: addr.String()})
	}
	if n := w.node(p.cluster + "/" + p.node); n != nil && len(n.lan) > 0 {
		out.Status.HostIP = n.lan[0].String()
	}
	return out
}

func serviceObject(svc service) corev1.Service {
	out := *svc.Service.DeepCopy()
	out.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	if len(svc.addrs) > 0 {
		out.Spec.ClusterIP = svc.addrs[0].String()
		out.Spec.ClusterIPs = nil
		for _, addr := range svc.addrs {
			out.Spec.ClusterIPs = append(out.Spec.ClusterIPs, addr.String())
		}
	}
	for i := range out.Spec.Ports {
		out.Spec.Ports[i].Protocol = cmp.Or(out.Spec.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	return out
}

// sliceObjects groups a service's endpoints like the EndpointSlice controller: by address family
// and by port numbers.
func sliceObjects(svc service) []any {
	var order []string
	groups := map[string]*discoveryv1.EndpointSlice{}
	for _, b := range svc.backends {
		for _, addr := range b.pod.addrs {
			key := fmt.Sprint(addr.Is6(), b.ports)
			if groups[key] == nil {
				groups[key] = newSlice(svc, addr.Is6(), b.ports, len(order)+1)
				order = append(order, key)
			}
			end := discoveryv1.Endpoint{
				Addresses:  []string{addr.String()},
				Conditions: discoveryv1.EndpointConditions{Ready: &b.ready, Serving: &b.pod.ready, Terminating: new(bool)},
				NodeName:   &b.pod.node,
				TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: b.pod.Namespace, Name: b.pod.Name},
			}
			if b.pod.Hostname != "" && b.pod.Subdomain == svc.Name {
				end.Hostname = &b.pod.Hostname
			}
			groups[key].Endpoints = append(groups[key].Endpoints, end)
		}
	}
	var out []any
	for _, key := range order {
		out = append(out, groups[key])
	}
	return out
}

func newSlice(svc service, six bool, ports []workload.ServicePort, number int) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace, Name: fmt.Sprintf("%s-%d", svc.Name, number),
			Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	if six {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, port := range ports {
		protocol, target := corev1.Protocol(port.Protocol), int32(port.Target)
		end := discoveryv1.EndpointPort{Name: &port.Name, Protocol: &protocol, Port: &target}
		if port.App != "" {
			end.AppProtocol = &port.App
		}
		slice.Ports = append(slice.Ports, end)
	}
	return slice
}

// resolvConf returns /etc/resolv.conf of a pod in a namespace. The name server has the address
// family of the cluster's first prefix.
func resolvConf(t topology, c cluster, namespace string) []byte {
	four, _ := families(c.podCIDRs)
	i := slices.IndexFunc(t.dns, func(a netip.Addr) bool { return a.Is4() == four })
	return fmt.Appendf(nil, "nameserver %s\nsearch %s.svc.%s svc.%s\noptions ndots:5\n", t.dns[max(i, 0)], namespace, t.domain, t.domain)
}

// hostsFile returns /etc/hosts of every node and pod.
func hostsFile(w *desiredLab) []byte {
	out := []byte("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	for _, name := range slices.Sorted(maps.Keys(w.hosts)) {
		out = fmt.Appendf(out, "%s %s\n", w.hosts[name], name)
	}
	return out
}
