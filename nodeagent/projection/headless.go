package projection

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// member is one endpoint of a headless export with the fixed global address of its hostname.
// host is nil without a fixed address.
type member struct {
	*model.Endpoint
	host *fabric.Host
}

// members pairs endpoints with fixed hosts: by full name first, then by the ordinal at the end
// of the name. Each host belongs to at most one endpoint.
func members(part *fabric.ExportCluster, svc *model.Service) []member {
	if svc == nil {
		return nil
	}
	out := make([]member, 0, len(svc.Endpoints))
	for i := range svc.Endpoints {
		out = append(out, member{Endpoint: &svc.Endpoints[i]})
	}
	slices.SortFunc(out, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.Hostname, b.Hostname), cmp.Compare(a.Pod, b.Pod), slices.CompareFunc(a.Addrs, b.Addrs, netip.Addr.Compare))
	})
	byName := make(map[string]*fabric.Host, len(part.Hosts))
	for i := range part.Hosts {
		byName[part.Hosts[i].Name] = &part.Hosts[i]
	}
	for _, name := range []func(string) string{func(s string) string { return s }, ordinalName} {
		for i := range out {
			key := name(out[i].Hostname)
			if host := byName[key]; host != nil && out[i].host == nil {
				out[i].host = host
				delete(byName, key)
			}
		}
	}
	return out
}

// ordinalName returns the name of the host that serves all hostnames with the same StatefulSet
// ordinal: "*-3" for "db-3".
func ordinalName(hostname string) string {
	i := strings.LastIndex(hostname, "-")
	digits := hostname[i+1:]
	if i < 0 || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return ""
	}
	return "*-" + digits
}

// addHeadless adds the entries that map each fixed address to its pod. The pod need not be ready,
// because an existing connection may still use the address.
func (v *builder) addHeadless(e *fabric.Export, part *fabric.ExportCluster, svc *model.Service) {
	if svc == nil {
		return
	}
	origin := exportPath(e.ID(), v.self.Name)
	if ready := len(v.liveHosts(part, svc)); ready > mcs.MaxHosts {
		v.problem(origin, status.TooManyHeadlessPods, strconv.Itoa(ready)+" pods are ready, and other clusters resolve only the first "+strconv.Itoa(mcs.MaxHosts)+
			" by name: divide them among several Services")
	}
	for _, m := range members(part, svc) {
		v.checkHeadless(e, m, origin)
		if m.host == nil {
			continue
		}
		for _, ip := range m.host.IPs {
			addr, ok := ofFamily(m.Addrs, fabric.Family(ip))
			if !ok {
				continue
			}
			v.elements.addr(desired.SetICMPEcho, ip, addr, origin)
			for _, p := range portsOf(e, part) {
				port := m.Ports[portKey(p)]
				if port == 0 {
					continue
				}
				v.addExternalEndpoint(m.Endpoint, addr, p.Protocol, port, origin)
				v.addEntry(entry{
					addr: ip, protocol: p.Protocol, port: p.Port, origin: origin,
					targets: []target{{key: addr.String(), addr: addr, port: port, weight: 1}},
				})
				// Other clusters know a flat cluster's pod by its own address. The
				// fixed address is the right source only behind globalnet.
				if v.self.IsGlobalnet(fabric.Family(addr)) {
					v.recordReplySource(addr, p.Protocol, port, ip, p.Port, origin)
				}
			}
		}
	}
	v.addHairpin(svc, origin)
}

// checkHeadless reports a pod without an address for other clusters.
func (v *builder) checkHeadless(e *fabric.Export, m member, origin string) {
	if len(v.addressesOutside(m)) > 0 {
		return
	}
	hint := "raise hostnames or name it there"
	switch {
	case !v.self.Globalnet:
		hint = "its own address is in no prefix of podCIDRs, so other clusters do not learn it"
	case e.Dynamic && m.Hostname == "":
		hint = "set a hostname, as a StatefulSet does, or use mapped egress, which assigns every pod an address"
	case e.Dynamic:
		hint = "no address is left or recorded yet; see the condition Ready of the ServiceExport"
	}
	v.problem(origin, status.HeadlessNoAddr, "pod "+cmp.Or(m.Hostname, m.Pod, humanize.Join(m.Addrs, ","))+" of "+e.ID()+" has no global address; "+hint)
}

// mappedAddrs returns the global addresses of a pod under mapped egress.
func (v *builder) mappedAddrs(addrs []netip.Addr) []netip.Addr {
	if v.self.EgressMode != fabric.EgressMapped {
		return nil
	}
	var out []netip.Addr
	for _, a := range addrs {
		for _, m := range v.self.Mappings {
			if m.Pods.Contains(a) {
				out = append(out, translate(a, m.Pods, m.Global))
				break
			}
		}
	}
	return out
}

// isNode reports whether an address belongs to a node. A pod on the host network has the address of
// its node.
func (v *builder) isNode(addr netip.Addr) bool { return v.nodeAddrs[addr] }
