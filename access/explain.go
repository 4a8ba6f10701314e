package access

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/reach"
)

// Explain returns how a source reaches a target. It fails if the fabric has no such cluster, port,
// pod address or target address. An export that no cluster has is an answer, not an error.
func (s *Set) Explain(from Source, to Target) (*Answer, error) {
	q := &query{Set: s, from: from, to: to, sourceCluster: s.model.Cluster(from.Cluster)}
	if q.sourceCluster == nil {
		return nil, fmt.Errorf("there is no cluster %s in the topology", from.Cluster)
	}
	if from.Addr.IsValid() && !from.Node && len(q.sourceCluster.PodCIDRs) > 0 && !containsAny(q.sourceCluster.PodCIDRs, from.Addr) {
		return nil, fmt.Errorf("%s is no pod of %s, whose podCIDRs are %s: correct the address or podCIDRs, or write %[2]s/node for a node",
			from.Addr, from.Cluster, humanize.Join(q.sourceCluster.PodCIDRs, ", "))
	}
	q.answer = &Answer{From: from, To: to, Destinations: []Destination{}, Lines: []Line{}}
	explain := q.explainAddress
	if to.Export != "" {
		explain = q.explainExport
	}
	if err := explain(); err != nil {
		return nil, err
	}
	q.setDecidedBy()
	q.addLive()
	return q.answer, nil
}

// query is the state of one call of Explain.
type query struct {
	*Set
	from          Source
	to            Target
	sourceCluster *fabric.Cluster
	export        *fabric.Export
	port          fabric.Port
	paths         map[string][]string // of the source's cluster; nil until needed
	answer        *Answer
}

func (q *query) addLine(path, format string, args ...any) {
	l := Line{Path: path, Source: q.Position(path), Text: fmt.Sprintf(format, args...)}
	if !slices.Contains(q.answer.Lines, l) {
		q.answer.Lines = append(q.answer.Lines, l)
	}
}

// explainExport answers for an export by name.
func (q *query) explainExport() error {
	f := q.model.Fabric()
	namespace, name, _ := strings.Cut(q.to.Export, "/")
	q.answer.Name = name + "." + namespace + ".svc." + f.Domain
	if q.to.Cluster != "" {
		q.answer.Name = q.to.Cluster + "." + q.answer.Name
	}
	for i := range f.Exports {
		if f.Exports[i].ID() == q.to.Export {
			q.export = &f.Exports[i]
		}
	}
	if q.export == nil {
		q.explainDynamic(namespace)
		return nil
	}
	path := exportPath(q.to.Export)
	if err := q.choosePort(); err != nil {
		return err
	}
	q.addLine(path, "the export")
	if q.to.Cluster != "" && q.export.ClusterPart(q.to.Cluster) == nil {
		d := q.deniedExport(q.export, q.from.Cluster, q.to.Cluster, q.port)
		q.answer.Reason, q.answer.DecidedBy = d.reason, d.path
		names := make([]string, len(q.export.Clusters))
		for i := range q.export.Clusters {
			names[i] = q.export.Clusters[i].Name
		}
		q.addLine(path+".clusters", "exported by %s", strings.Join(names, ", "))
		return nil
	}
	for i := range q.export.Clusters {
		if part := &q.export.Clusters[i]; q.to.Cluster == "" || q.to.Cluster == part.Name {
			q.answer.Destinations = append(q.answer.Destinations, q.exportDestination(part))
			q.addLine(path+".clusters["+part.Name+"]", "%s exports it", part.Name)
		}
	}
	if q.export.Allow != nil {
		q.addLine(path+".allow", "open to %s", strings.Join(q.export.Allow, ", "))
	}
	if len(q.answer.Destinations) > 1 && q.export.Type == fabric.ClusterSetIP {
		q.addLine(path+".balance", "%s", q.export.Balance.Policy)
	}
	q.setVerdict(q.to.Export + ":" + formatPort(q.port))
	return nil
}

// explainDynamic answers for an export that is not in the topology, but that clusters may create
// with a ServiceExport. The destinations are the clusters that created it, if agents report them.
// Otherwise they are all clusters that may create it.
func (q *query) explainDynamic(namespace string) {
	d, id, a := q.model.Fabric().DynamicExports, q.to.Export, q.answer
	a.DecidedBy = "dynamicExports"
	exporters, reported := q.reports.exporters(id)
	if !d.Matches(namespace) {
		a.Reason = fmt.Sprintf("no cluster exports %s: it is not in exports, and clusters may not export from namespace %s by themselves", id, namespace)
		return
	}
	q.addLine("dynamicExports", "clusters may export from namespace %s by themselves", namespace)
	for _, c := range q.model.Fabric().Clusters {
		if q.to.Cluster != "" && q.to.Cluster != c.Name || !d.Allows(namespace, c.Name) {
			continue
		}
		t := Destination{Cluster: c.Name, DecidedBy: "dynamicExports", Backend: "what it exports by itself"}
		switch sameCluster := c.Name == q.from.Cluster; {
		case reported && !slices.Contains(exporters, c.Name), !reported && sameCluster:
			continue
		case sameCluster:
			t.Allowed = true
		default:
			t.Links = q.pathLinks(c.Name)
			if t.Allowed = q.model.Dynamic(c.Name).ReachableFrom(q.from.Cluster, fabric.Port{}); !t.Allowed {
				q.deny(&t, q.deniedDynamic(q.from.Cluster, c.Name))
			}
		}
		if reported {
			t.Backend = "pods of " + id
		}
		a.Destinations = append(a.Destinations, t)
	}
	a.Allowed = slices.ContainsFunc(a.Destinations, func(t Destination) bool { return t.Allowed })
	switch {
	case a.Allowed && reported:
		a.Reason = fmt.Sprintf("%s reach %s, which clusters export by themselves", q.from, id)
	case a.Allowed:
		a.Reason = fmt.Sprintf("%s reach %s as soon as a cluster makes a ServiceExport of it: hawser show exports", q.from, id)
	default:
		a.Reason = fmt.Sprintf("no cluster to which %s has a path may export %s", q.from.Cluster, id)
	}
}

// choosePort sets the requested port.
func (q *query) choosePort() error {
	protocol := strings.ToUpper(q.to.Protocol)
	for _, p := range q.export.Ports {
		switch {
		case q.to.Port == "" && (protocol == "" || p.Protocol == protocol), p.Name != "" && p.Name == q.to.Port,
			fmt.Sprint(p.Port) == q.to.Port && p.Protocol == protocol:
			q.port = p
			q.answer.To.Port, q.answer.To.Protocol = fmt.Sprint(p.Port), strings.ToLower(p.Protocol)
			return nil
		}
	}
	var number int
	if _, err := fmt.Sscan(q.to.Port, &number); err != nil || number < 1 || number > 65535 {
		return fmt.Errorf("%s has no port %q: it has %s", q.to.Export, q.to.Port, formatPorts(q.export))
	}
	q.port = fabric.Port{Protocol: protocol, Port: number}
	return nil
}

// exportDestination returns the destination in one cluster that has a part of the export.
func (q *query) exportDestination(part *fabric.ExportCluster) Destination {
	path := exportPath(q.export.ID())
	t := Destination{Cluster: part.Name, Backend: "pods of " + q.to.Export, DecidedBy: path + ".clusters[" + part.Name + "]"}
	target := q.model.Export(q.export, part.Name)
	t.Requested = target.Addrs()
	if q.export.Type == fabric.ClusterSetIP && q.to.Cluster == "" {
		t.Requested = q.export.VIPs
	}
	if part.Name == q.from.Cluster {
		// No gateway is involved, and an exporting cluster may always reach itself.
		if t.Allowed = hasPort(q.export, q.port); !t.Allowed {
			t.DecidedBy = path + ".ports"
			t.Reason = fmt.Sprintf("%s has no port %s: it has %s", q.to.Export, formatPort(q.port), formatPorts(q.export))
		}
		return t
	}
	t.Links = q.pathLinks(part.Name)
	t.Allowed = q.tracePackets(&t, target)
	switch {
	case !t.Allowed:
		q.deny(&t, q.deniedExport(q.export, q.from.Cluster, part.Name, q.port))
	case q.export.Allow != nil:
		t.DecidedBy = path + ".allow.clusters[" + q.from.Cluster + "]"
	}
	return t
}

func (q *query) deny(t *Destination, d denial) {
	t.Reason, t.DecidedBy = d.reason, d.path
	if d.line.Path != "" {
		q.addLine(d.line.Path, "%s", d.line.Text)
	}
}

// tracePackets reports whether a packet to one of the requested addresses arrives at the target. It
// sets the addresses before and after translation.
func (q *query) tracePackets(t *Destination, target *reach.Target) bool {
	arrived := false
	for src, path := range target.Paths(q.from.Cluster, q.clientAddrs(), t.Requested, q.port) {
		if !path.Delivered() {
			continue
		}
		arrived = true
		for _, d := range path.Out.Dst {
			if q.model.RoutesTo(t.Cluster, d.Addr()) && !slices.Contains(t.Translated, d.Addr()) {
				t.Translated = append(t.Translated, d.Addr())
			}
		}
		q.addSources(t, src, path.Out.Srcs)
	}
	return arrived
}

// clientAddrs returns an address of the client per family.
func (q *query) clientAddrs() []netip.Addr {
	switch {
	case q.from.Addr.IsValid():
		return []netip.Addr{q.from.Addr}
	case q.from.Node:
		// Any address outside the clusters' prefixes.
		var out []netip.Addr
		if q.sourceCluster.Has(4) {
			out = append(out, netip.AddrFrom4([4]byte{192, 0, 2, 1}))
		}
		if q.sourceCluster.Has(6) {
			out = append(out, netip.MustParseAddr("2001:db8::1"))
		}
		return out
	}
	return reach.SamplePod(q.sourceCluster)
}

// addSources adds the addresses that the other cluster sees for a client with the address src.
func (q *query) addSources(t *Destination, src netip.Addr, srcs []netip.Addr) {
	path := clusterPath(q.from.Cluster)
	hasRule := false
	for i := range q.sourceCluster.EgressRules {
		r := &q.sourceCluster.EgressRules[i]
		if q.from.Node || q.from.Namespace != r.Namespace {
			continue
		}
		if len(r.MatchLabels) > 0 {
			q.addLine(path+".egress["+r.Name+"]", "pods with labels %v go out as %s", r.MatchLabels,
				strings.Join(fabric.Ranges(r.IPs), ", "))
			continue
		}
		q.addLine(path+".egress["+r.Name+"]", "pods of namespace %s go out as %s", r.Namespace,
			strings.Join(fabric.Ranges(r.IPs), ", "))
		srcs = slices.DeleteFunc(slices.Clone(r.IPs), func(a netip.Addr) bool { return a.Is4() != src.Is4() })
		hasRule = true
	}
	if hasRule {
		t.Sources = append(t.Sources, fabric.Ranges(srcs)...)
		return
	}
	switch {
	case len(srcs) == 0:
		q.addLine(path, "%s is flat: others see its pods' own addresses", q.from.Cluster)
	case !q.from.Addr.IsValid() && len(srcs) == 1 && slices.ContainsFunc(q.sourceCluster.Mappings,
		func(m fabric.Mapping) bool { return m.Pods.Contains(src) }): // src is a sample address
		for _, m := range q.sourceCluster.Mappings {
			if m.Global.Addr().Is4() == src.Is4() {
				t.Sources = append(t.Sources, m.Global.String())
				q.addLine(path, "pods of %s go out as addresses of %s", m.Pods, m.Global)
			}
		}
	default:
		t.Sources = append(t.Sources, fabric.Ranges(srcs)...)
		q.addLine(path, "%s goes out as %s", q.from.Cluster,
			strings.Join(fabric.Ranges(srcs), ", "))
	}
	slices.Sort(t.Sources)
	t.Sources = slices.Compact(t.Sources)
}

// pathLinks returns the links of the path to a cluster.
func (q *query) pathLinks(to string) []Link {
	if q.paths == nil {
		q.paths = q.graph.Paths(q.from.Cluster, nil)
	}
	path := q.paths[to]
	if len(path) > 1 {
		q.addLine("connectivity", "%s reaches %s through %s", q.from.Cluster, to, strings.Join(path[:len(path)-1],
			", then "))
	}
	var out []Link
	current := q.from.Cluster
	for _, next := range path {
		l := Link{From: current, To: next, Driver: q.model.Fabric().Link(current, next).Driver}
		if local, remote, ok := q.PreferredLink(current, next); ok {
			l.From, l.To = current+"/"+local, next+"/"+remote
			for name, g := range map[string]*fabric.Gateway{l.From: q.model.Cluster(current).Gateway(local), l.To: q.model.Cluster(next).Gateway(remote)} {
				if g != nil && g.HasNodeSelector() {
					setKey(&l.NodeSelectors, name, g.NodeText())
				}
			}
		}
		out = append(out, l)
		current = next
	}
	return out
}

// explainAddress answers for an address.
func (q *query) explainAddress() error {
	number := 0
	if _, err := fmt.Sscan(q.to.Port, &number); err != nil || number < 1 || number > 65535 {
		return fmt.Errorf("port %q of %s: give a number, as in %s:80", q.to.Port, q.to.Addr, q.to.Addr)
	}
	q.port = fabric.Port{Protocol: strings.ToUpper(q.to.Protocol), Port: number}
	addrPort := netip.AddrPortFrom(q.to.Addr, uint16(number)).String()
	if e := q.exportByAddr(q.to); e != nil {
		q.export, q.to.Export = e, e.ID()
		q.addLine(exportPath(e.ID()), "%s is an address of this export", q.to.Addr)
		for i := range e.Clusters {
			part := &e.Clusters[i]
			isHostAddr := slices.ContainsFunc(part.Hosts, func(h fabric.Host) bool { return slices.Contains(h.IPs, q.to.Addr) })
			if !slices.Contains(e.VIPs, q.to.Addr) && !slices.Contains(q.model.Export(e, part.Name).Addrs(), q.to.Addr) && !isHostAddr {
				continue
			}
			t := q.exportDestination(part)
			t.Requested = []netip.Addr{q.to.Addr}
			q.answer.Destinations = append(q.answer.Destinations, t)
		}
		if e.Allow != nil {
			q.addLine(exportPath(e.ID())+".allow", "open to %s", strings.Join(e.Allow, ", "))
		}
		q.setVerdict(addrPort)
		return nil
	}
	owner := q.to.Cluster
	if owner == "" {
		owner = q.model.Owner(q.to.Addr, q.from.Cluster)
	}
	if owner != "" && q.model.Cluster(owner) == nil {
		return fmt.Errorf("there is no cluster %s in the topology", owner)
	}
	if err := q.checkOwner(owner); err != nil {
		return err
	}
	t := Destination{Cluster: owner, Requested: []netip.Addr{q.to.Addr}, Links: q.pathLinks(owner), Backend: "that address"}
	if owner == q.from.Cluster {
		q.answer.Reason = "both are in " + owner + ": Hawser has no part in it"
		q.answer.Allowed = true
		return nil
	}
	if t.Allowed = q.tracePackets(&t, q.model.Address(owner, q.to.Addr)); t.Allowed {
		t.DecidedBy = clusterPath(owner)
		q.addLine(clusterPath(owner), "%s is flat: its own addresses are reached", owner)
	} else {
		q.deny(&t, q.deniedAddress(q.from.Cluster, owner, q.to.Addr))
	}
	q.answer.Destinations = append(q.answer.Destinations, t)
	q.setVerdict(addrPort)
	return nil
}

// maxPrefixes is the maximum number of prefixes in an error.
const maxPrefixes = 12

// checkOwner returns an error if the target address belongs to no cluster and no export. owner is
// empty if the source's cluster has no route for the address.
func (q *query) checkOwner(owner string) error {
	var all []netip.Prefix
	var source string
	switch f := q.model.Fabric(); {
	case q.to.Cluster != "":
		c := q.model.Cluster(owner)
		all, source = slices.Concat(c.PodCIDRs, c.ServiceCIDRs, c.GlobalCIDRs), "prefixes of "+owner
		if len(all) == 0 || containsAny(all, q.to.Addr) {
			return nil
		}
	case owner != "":
		return nil
	default:
		source = "clusterset IPs, global addresses, podCIDRs and serviceCIDRs"
		all = slices.Concat(f.ServicePools, f.GlobalPools)
		if f.DynamicExports != nil {
			all = append(all, f.DynamicExports.VIPs...)
		}
		for i := range f.Clusters {
			all = slices.Concat(all, f.Clusters[i].PodCIDRs, f.Clusters[i].ServiceCIDRs, f.Clusters[i].GlobalCIDRs)
		}
		if containsAny(all, q.to.Addr) {
			return fmt.Errorf("%s leads to no other cluster: it is no address of an export, of a used global block or of a flat cluster; "+
				"for an address that a cluster hides, name the cluster, as in %s/%[1]s", q.to.Addr, f.Clusters[0].Name)
		}
	}
	all = cidr.Outermost(all)
	list := humanize.Join(all[:min(len(all), maxPrefixes)], ", ")
	if len(all) > maxPrefixes {
		list += ", ..."
	}
	return fmt.Errorf("%s belongs to no cluster and no export: the %s are %s (hawser show clusters)", q.to.Addr, source, list)
}

func containsAny(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// exportByAddr returns the export that an address belongs to, or nil.
func (s *Set) exportByAddr(to Target) *fabric.Export {
	if to.Cluster != "" {
		return nil // the cluster's own address
	}
	for _, e := range s.model.ExportsAt(to.Addr) {
		return e
	}
	return nil
}

// setVerdict sets the answer from the destinations: one allowed destination is enough.
func (q *query) setVerdict(target string) {
	a := q.answer
	var reached, reasons []string
	for _, t := range a.Destinations {
		if t.Allowed {
			reached = append(reached, t.Cluster)
		} else if !slices.Contains(reasons, t.Reason) {
			reasons = append(reasons, t.Reason)
		}
	}
	if a.Allowed = len(reached) > 0; a.Allowed {
		a.Reason = fmt.Sprintf("%s: %s is reached in %s", q.from, target,
			strings.Join(reached, ", "))
		return
	}
	a.Reason = strings.Join(reasons, "; ")
}

// setDecidedBy sets DecidedBy.
func (q *query) setDecidedBy() {
	a := q.answer
	for _, sameCluster := range []bool{true, false} {
		for i := range a.Destinations {
			if t := &a.Destinations[i]; t.Allowed == a.Allowed && (t.Cluster == q.from.Cluster) == sameCluster {
				a.DecidedBy = t.DecidedBy
				return
			}
		}
	}
}
