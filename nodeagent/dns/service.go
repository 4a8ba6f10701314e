package dns

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/desired"
)

// service is one service, prepared for answers.
type service struct {
	spec      desired.Service
	key       string // <svc>.<ns>, lower case
	namespace string // lower case
	names     map[string]*name
	ports     []desired.ServicePort // named ports, in lower case
	numbers   map[string]int        // of all ports, by portKey
	addrs     map[netip.Addr]string // every address with its most specific name
}

// name has the addresses of one name at or below <svc>.<ns>.svc. Its key in service.names is "",
// "<cluster>" or "<host>.<cluster>".
type name struct {
	cluster bool // <cluster>.<svc>: only in zones with cluster names
	v4, v6  []netip.Addr
	targets []string       // of SRV records: keys in service.names
	ports   map[string]int // of a pod, as in desired.ServiceHost
	numbers []int          // of all ports of the service at this name, each once
}

// number returns the number of a port of the service (portKey) at a name.
func (n *name) number(s *service, port string) int {
	if number, other := n.ports[port]; other {
		return number
	}
	return s.numbers[port]
}

// portKey returns a port in the notation of desired.ServiceHost.
func portKey(p desired.ServicePort) string {
	return strings.ToUpper(p.Protocol) + "/" + strconv.Itoa(p.Port)
}

func newService(spec desired.Service) *service {
	s := &service{
		spec:      spec,
		key:       indexKey(spec),
		namespace: strings.ToLower(spec.Namespace),
		names:     map[string]*name{},
		numbers:   map[string]int{},
		addrs:     map[netip.Addr]string{},
	}
	for _, port := range spec.Ports {
		s.numbers[portKey(port)] = port.Port
		if port.Name != "" {
			port.Name, port.Protocol = strings.ToLower(port.Name), strings.ToLower(port.Protocol)
			s.ports = append(s.ports, port)
		}
	}
	s.put("", spec.VIPs)
	for _, cluster := range spec.Clusters {
		key := strings.ToLower(cluster.Name)
		s.put(key, cluster.IPs)
		s.names[key].cluster = true
		if !s.spec.Headless {
			s.names[key].targets = []string{key}
			continue
		}
		for _, host := range cluster.Hosts {
			if len(host.IPs) == 0 {
				continue
			}
			label := strings.ToLower(host.Name)
			if label == "" {
				label = cidr.Label(host.IPs[0])
			}
			target := label + "." + key
			s.put(target, host.IPs)
			for _, owner := range []string{"", key} {
				at := s.names[owner]
				at.add(host.IPs)
				at.targets = append(at.targets, target)
			}
			s.names[target].targets = []string{target}
			s.names[target].ports = host.Ports
		}
	}
	if !spec.Headless {
		s.names[""].targets = []string{""}
	}
	numbers := (&name{}).allNumbers(s)
	for _, n := range s.names {
		n.numbers = numbers
		if len(n.ports) > 0 {
			n.numbers = n.allNumbers(s)
		}
		slices.SortFunc(n.v4, netip.Addr.Compare)
		slices.SortFunc(n.v6, netip.Addr.Compare)
		slices.Sort(n.targets)
		n.v4, n.v6, n.targets = slices.Compact(n.v4), slices.Compact(n.v6), slices.Compact(n.targets)
	}
	return s
}

// allNumbers returns the numbers of all ports at a name, each once, in the service's order.
func (n *name) allNumbers(s *service) []int {
	var out []int
	for _, p := range s.spec.Ports {
		if number := n.number(s, portKey(p)); !slices.Contains(out, number) {
			out = append(out, number)
		}
	}
	return out
}

// put adds addresses to a name. Reverse lookups of these addresses return that name.
func (s *service) put(key string, addrs []netip.Addr) {
	if s.names[key] == nil {
		s.names[key] = &name{}
	}
	s.names[key].add(addrs)
	for _, addr := range addrs {
		s.addrs[addr.Unmap()] = key
	}
}

func (n *name) add(addrs []netip.Addr) {
	for _, addr := range addrs {
		if addr = addr.Unmap(); addr.Is4() {
			n.v4 = append(n.v4, addr)
		} else {
			n.v6 = append(n.v6, addr)
		}
	}
}

// port finds a port by the labels of an SRV name.
func (s *service) port(name, protocol string) (desired.ServicePort, bool) {
	i := slices.IndexFunc(s.ports, func(p desired.ServicePort) bool { return p.Name == name && p.Protocol == protocol })
	if i < 0 {
		return desired.ServicePort{}, false
	}
	return s.ports[i], true
}
