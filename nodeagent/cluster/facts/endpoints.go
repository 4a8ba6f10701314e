package facts

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"hawser.dev/hawser/nodeagent/model"
)

// fromSlices joins the slices of one Service. A pod with two families is in two slices. A pod may
// also be in two slices while the controller moves it. In both cases it is one endpoint. numbers
// maps protocol/name of the Service's ports to protocol/number. unsupported lists parts that
// kube-proxy and Hawser ignore.
func fromSlices(slicesOfService []*discoveryv1.EndpointSlice, numbers map[string]string) (out []model.Endpoint, unsupported []string) {
	byKey := map[string]*model.Endpoint{}
	for _, slice := range slicesOfService {
		if slice.AddressType == discoveryv1.AddressTypeFQDN {
			unsupported = append(unsupported, "EndpointSlice "+slice.Name+" has names instead of addresses (addressType FQDN)")
			continue
		}
		ports := make(map[string]int, len(slice.Ports))
		for _, port := range slice.Ports {
			protocol, name := string(ptr.Deref(port.Protocol, corev1.ProtocolTCP)), ptr.Deref(port.Name, "")
			number, known := numbers[protocol+"/"+name]
			switch {
			case !known:
			case port.Port == nil: // "all ports" in the API
				unsupported = append(unsupported, "EndpointSlice "+slice.Name+" has no number for port "+strconv.Quote(name))
			default:
				ports[number] = int(*port.Port)
			}
		}
		for i := range slice.Endpoints {
			key, endpoint, ok := fromEndpoint(&slice.Endpoints[i])
			if !ok {
				continue
			}
			endpoint.Ports = maps.Clone(ports)
			known := byKey[key]
			if known != nil && contradicts(known.Addrs, endpoint.Addrs[0]) {
				key += "/" + endpoint.Addrs[0].String()
				known = byKey[key]
			}
			if known != nil {
				merge(known, endpoint)
			} else {
				byKey[key] = &endpoint
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		out = append(out, *byKey[key])
	}
	return out, unsupported
}

// contradicts reports whether addrs has another address of the same family. If so, the endpoint is
// a new pod of the same name, and another slice still has the previous pod.
func contradicts(addrs []netip.Addr, addr netip.Addr) bool {
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is4() == addr.Is4() && a != addr })
}

// fromEndpoint converts one endpoint and returns its key. It uses only the first address: the API
// does not define the meaning of further addresses, and kube-proxy uses the first one.
func fromEndpoint(endpoint *discoveryv1.Endpoint) (string, model.Endpoint, bool) {
	if len(endpoint.Addresses) == 0 {
		return "", model.Endpoint{}, false
	}
	addr, err := netip.ParseAddr(endpoint.Addresses[0])
	if err != nil {
		return "", model.Endpoint{}, false
	}
	// Defaults of the API: ready, serving, not terminating.
	conditions := endpoint.Conditions
	out := model.Endpoint{Addrs: []netip.Addr{addr.Unmap()}, Ready: ptr.Deref(conditions.Ready, true)}
	out.Terminating = !out.Ready && ptr.Deref(conditions.Serving, true) && ptr.Deref(conditions.Terminating, false)
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

// merge adds a copy of the endpoint from another slice. The endpoint is ready if either copy is
// ready: the other copy is then older.
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
	into.Terminating = !into.Ready && (into.Terminating || more.Terminating)
	maps.Copy(into.Ports, more.Ports)
}
