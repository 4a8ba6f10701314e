package facts

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"hawser.dev/hawser/nodeagent/model"
)

// fromSlices joins the slices of one service. A pod of two families stands in
// two slices, and a pod may stand in two slices while the controller moves it;
// either way it is one endpoint. numbers maps protocol/name of the service's
// ports to protocol/number.
func fromSlices(slicesOfService []*discoveryv1.EndpointSlice, numbers map[string]string) []model.Endpoint {
	byKey := map[string]*model.Endpoint{}
	for _, slice := range slicesOfService {
		if slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		ports := make(map[string]int, len(slice.Ports))
		for _, port := range slice.Ports {
			protocol, name := string(ptr.Deref(port.Protocol, corev1.ProtocolTCP)), ptr.Deref(port.Name, "")
			// A port without a number means "all ports" in the API; no service has one.
			if number, known := numbers[protocol+"/"+name]; known && port.Port != nil {
				ports[number] = int(*port.Port)
			}
		}
		for i := range slice.Endpoints {
			key, endpoint, ok := fromEndpoint(&slice.Endpoints[i])
			if !ok {
				continue
			}
			endpoint.Ports = maps.Clone(ports)
			if known := byKey[key]; known != nil {
				merge(known, endpoint)
			} else {
				byKey[key] = &endpoint
			}
		}
	}
	var out []model.Endpoint
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		out = append(out, *byKey[key])
	}
	return out
}

// fromEndpoint maps one endpoint and gives the key by which it is known. Only
// the first address counts: the API leaves the meaning of more open, and
// kube-proxy reads the first.
func fromEndpoint(endpoint *discoveryv1.Endpoint) (string, model.Endpoint, bool) {
	if len(endpoint.Addresses) == 0 {
		return "", model.Endpoint{}, false
	}
	addr, err := netip.ParseAddr(endpoint.Addresses[0])
	if err != nil {
		return "", model.Endpoint{}, false
	}
	out := model.Endpoint{
		Addrs: []netip.Addr{addr.Unmap()},
		Ready: endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready,
	}
	key := "addr/" + out.Addrs[0].String()
	if endpoint.Hostname != nil {
		out.Hostname = *endpoint.Hostname
	}
	if endpoint.NodeName != nil {
		out.Node = *endpoint.NodeName
	}
	if ref := endpoint.TargetRef; ref != nil && ref.Kind == "Pod" {
		out.Pod = ref.Name
		key = "pod/" + ref.Name
	}
	return key, out, true
}

// merge adds what another slice says of the same endpoint. It is ready when one
// of them says so: the other is then the older copy.
func merge(into *model.Endpoint, more model.Endpoint) {
	for _, addr := range more.Addrs {
		if !slices.Contains(into.Addrs, addr) {
			into.Addrs = append(into.Addrs, addr)
		}
	}
	slices.SortFunc(into.Addrs, netip.Addr.Compare)
	into.Hostname = cmp.Or(into.Hostname, more.Hostname)
	into.Node = cmp.Or(into.Node, more.Node)
	into.Ready = into.Ready || more.Ready
	maps.Copy(into.Ports, more.Ports)
}
