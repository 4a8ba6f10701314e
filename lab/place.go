package lab

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"hawser.dev/hawser/lab/workload"
)

// clientPod returns the pod default/client, which every cluster has for users.
func clientPod(node string) workload.Pod {
	return workload.Pod{Namespace: "default", Name: "client", NodeName: node, Labels: map[string]string{"app": "client"}}
}

// planCluster assigns the pods of a cluster to nodes, and addresses to pods and services. It omits
// objects that it cannot place, and adds them to w.problems.
func (w *desiredLab) planCluster(c cluster, set *workload.Set, s *state) clusterPlan {
	out := clusterPlan{cluster: c, number: s.number(c.name)}
	nodes := w.nodesOf(c.name)
	if len(nodes) == 0 {
		return out
	}
	workers := slices.DeleteFunc(slices.Clone(nodes), func(n node) bool { return n.gateway })
	if len(workers) == 0 {
		workers = nodes
	}
	owners := map[string]string{}
	for id, slot := range s.Pods {
		if clusterOf(id) == c.name {
			owners[strings.TrimPrefix(id, c.name+"/")] = slot.Owner
		}
	}
	pods := set.Pods(owners)
	if !slices.ContainsFunc(pods, func(p workload.Pod) bool { return p.ID() == "default/client" }) {
		node := workers[0].name
		if slot, known := s.Pods[c.name+"/default/client"]; known && w.node(c.name+"/"+slot.Node) != nil {
			node = slot.Node
		}
		pods = append(pods, clientPod(node))
		slices.SortFunc(pods, func(a, b workload.Pod) int { return cmp.Compare(a.ID(), b.ID()) })
	}
	// Remove deleted pods.
	for id, slot := range s.Pods {
		deleted := !slices.ContainsFunc(pods, func(p workload.Pod) bool { return c.name+"/"+p.ID() == id })
		if clusterOf(id) == c.name && deleted {
			s.PreviousAddrs[id] = slot.Addrs
			delete(s.Pods, id)
			delete(s.Ready, id)
		}
	}
	for _, p := range pods {
		placed, err := w.placePod(c.name, p, workers, s)
		if err != nil {
			w.problems = append(w.problems, fmt.Sprintf("cluster %s: %v", c.name, err))
			continue
		}
		out.pods = append(out.pods, placed)
	}
	for _, o := range set.Services() {
		svc, err := placeService(c, o.Service, out.pods, s)
		if err != nil {
			w.problems = append(w.problems, fmt.Sprintf("cluster %s: %v", c.name, err))
			continue
		}
		out.services = append(out.services, svc)
	}
	for _, o := range set.Exports() {
		out.exports = append(out.exports, o.Export)
	}
	return out
}

func (w *desiredLab) placePod(cluster string, p workload.Pod, workers []node, s *state) (pod, error) {
	out := pod{Pod: p, cluster: cluster}
	id := out.id()
	slot, known := s.Pods[id]
	switch {
	case p.NodeName != "":
		out.node = p.NodeName
	case known && w.node(cluster+"/"+slot.Node) != nil && labels.SelectorFromSet(p.NodeLabels).Matches(labels.Set(w.node(cluster+"/"+slot.Node).allLabels())):
		out.node = slot.Node
	default:
		candidates := workers
		if len(p.NodeLabels) > 0 { // a gateway may have the labels too
			candidates = slices.DeleteFunc(w.nodesOf(cluster), func(n node) bool { return !labels.SelectorFromSet(p.NodeLabels).Matches(labels.Set(n.allLabels())) })
		}
		if len(candidates) == 0 {
			return out, fmt.Errorf("pod %s: no node of cluster %s has the labels of its nodeSelector: %s", p.ID(), cluster, labels.Set(p.NodeLabels))
		}
		out.node = candidates[s.Cursor[cluster]%len(candidates)].name
		s.Cursor[cluster]++
	}
	n := w.node(cluster + "/" + out.node)
	if n == nil {
		return out, fmt.Errorf("pod %s: node %q not found in cluster %s", p.ID(), out.node, cluster)
	}
	if p.HostNetwork {
		out.addrs = n.lan
	} else {
		addrs, err := s.podAddrs(id, n)
		if err != nil {
			return out, fmt.Errorf("pod %s: %w", p.ID(), err)
		}
		out.addrs = addrs
	}
	s.Pods[id] = podSlot{Node: out.node, Owner: p.Owner, Addrs: out.addrs}
	out.ready = p.WantsReady()
	if set, userSet := s.Ready[id]; userSet {
		out.ready = set
	}
	out.ready = out.ready && !s.Off[n.id()]
	return out, nil
}

// podAddrs returns the current or former addresses of the pod if possible. Otherwise it assigns the
// lowest free address. It prefers addresses that never had a pod.
func (s *state) podAddrs(id string, n *node) ([]netip.Addr, error) {
	taken, remembered := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for other, slot := range s.Pods {
		for _, addr := range slot.Addrs {
			taken[addr] = taken[addr] || (other != id && clusterOf(other) == n.cluster)
		}
	}
	for other, addrs := range s.PreviousAddrs {
		for _, addr := range addrs {
			remembered[addr] = remembered[addr] || (other != id && clusterOf(other) == n.cluster)
		}
	}
	previous := slices.Concat(s.Pods[id].Addrs, s.PreviousAddrs[id])
	var out []netip.Addr
	for _, share := range n.podCIDRs {
		i := slices.IndexFunc(previous, func(a netip.Addr) bool { return share.Contains(a) && !taken[a] })
		if i >= 0 {
			out = append(out, previous[i])
			continue
		}
		addr, err := freeAddr(share, 2, taken, remembered)
		if err != nil {
			return nil, err
		}
		out = append(out, addr)
	}
	return out, nil
}

func placeService(c cluster, svc *corev1.Service, pods []pod, s *state) (service, error) {
	out := service{Service: svc}
	podList := make([]workload.Pod, len(pods))
	byID := map[string]*pod{}
	for i := range pods {
		podList[i] = pods[i].Pod
		byID[pods[i].ID()] = &pods[i]
	}
	for _, b := range workload.Backends(svc, podList) {
		placed := byID[b.Pod.ID()]
		out.backends = append(out.backends, backend{pod: placed, ports: b.Ports, ready: placed.ready || svc.Spec.PublishNotReadyAddresses})
	}
	if svc.Spec.ClusterIP == corev1.ClusterIPNone || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return out, nil
	}
	addrs, err := s.clusterIPs(c, svc)
	if err != nil {
		return out, fmt.Errorf("service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	out.addrs = addrs
	return out, nil
}

// clusterIPs returns the addresses of a service: requested, previous or new ones. A service has one
// address of the cluster's first family; a dual-stack service has two.
func (s *state) clusterIPs(c cluster, svc *corev1.Service) ([]netip.Addr, error) {
	id := c.name + "/" + svc.Namespace + "/" + svc.Name
	taken := map[netip.Addr]bool{}
	for other, addrs := range s.Services {
		for _, addr := range addrs {
			taken[addr] = taken[addr] || (other != id && clusterOf(other) == c.name)
		}
	}
	requested, err := requestedIPs(svc)
	if err != nil {
		return nil, err
	}
	candidates := slices.Concat(requested, s.Services[id])
	prefixes := servicePrefixes(c.serviceCIDRs, svc)
	if families := max(1, len(svc.Spec.IPFamilies)); len(prefixes) == 0 ||
		svc.Spec.IPFamilyPolicy != nil && *svc.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(prefixes) < max(2, families) {
		return nil, fmt.Errorf("the cluster's service CIDRs %v lack an IP family that the service needs", c.serviceCIDRs)
	}
	var out []netip.Addr
	for _, cidr := range prefixes {
		i := slices.IndexFunc(candidates, cidr.Contains)
		if i < 0 {
			addr, err := freeAddr(cidr, 10, taken)
			if err != nil {
				return nil, err
			}
			out = append(out, addr)
			continue
		}
		if taken[candidates[i]] {
			return nil, fmt.Errorf("clusterIP %s belongs to another service", candidates[i])
		}
		out = append(out, candidates[i])
	}
	for _, addr := range requested {
		if !slices.Contains(out, addr) {
			return nil, fmt.Errorf("clusterIP %s is not in the cluster's service CIDRs %v", addr, c.serviceCIDRs)
		}
	}
	s.Services[id] = out
	return out, nil
}

func requestedIPs(svc *corev1.Service) ([]netip.Addr, error) {
	requested := map[netip.Addr]bool{}
	for _, text := range append([]string{svc.Spec.ClusterIP}, svc.Spec.ClusterIPs...) {
		if text == "" {
			continue
		}
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("clusterIP %q is not an address", text)
		}
		requested[addr] = true
	}
	return slices.SortedFunc(maps.Keys(requested), netip.Addr.Compare), nil
}

// servicePrefixes returns the service prefixes for the service's addresses.
func servicePrefixes(cidrs []netip.Prefix, svc *corev1.Service) []netip.Prefix {
	out := firstOf(cidrs)
	if len(svc.Spec.IPFamilies) > 0 {
		out = slices.DeleteFunc(out, func(p netip.Prefix) bool {
			family := corev1.IPv4Protocol
			if p.Addr().Is6() {
				family = corev1.IPv6Protocol
			}
			return !slices.Contains(svc.Spec.IPFamilies, family)
		})
	} else if addr, err := netip.ParseAddr(svc.Spec.ClusterIP); err == nil && len(svc.Spec.ClusterIPs) < 2 {
		out = slices.DeleteFunc(out, func(p netip.Prefix) bool { return !p.Contains(addr) })
		return out
	}
	dual := svc.Spec.IPFamilyPolicy != nil && *svc.Spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack
	if !dual && len(out) > 1 && len(svc.Spec.IPFamilies) < 2 {
		return out[:1]
	}
	return out
}
