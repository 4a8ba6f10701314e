// Package explain says whether a pod or node of one cluster reaches something in another
// one, by which lines of the topology, over which links, and which addresses each side
// sees. It knows the compiled clusterset alone: that backends are ready and links are
// alive is taken for granted; internal/arrival adds what agents report of both. What
// packets may do schema/fabric/reach says. It is pure.
package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/reach"
)

// From is who asks: a pod, or a process of a node.
type From struct {
	Cluster   string     `json:"cluster"`
	Namespace string     `json:"namespace,omitempty"` // of the pod; empty: any
	Pod       string     `json:"pod,omitempty"`
	Node      bool       `json:"node,omitempty"` // a process on the host network of some node
	Addr      netip.Addr `json:"address,omitzero"`
}

// To is what is asked for: an export, or an address.
type To struct {
	Export  string     `json:"export,omitempty"`  // namespace/name
	Cluster string     `json:"cluster,omitempty"` // the export in this cluster only, or whose own address Addr is
	Addr    netip.Addr `json:"address,omitzero"`
	// Port is a number or, of an export, a name; empty: the first one of the export.
	Port     string `json:"port,omitempty"`
	Protocol string `json:"protocol"` // tcp | udp
}

// Answer is what is known of a question.
type Answer struct {
	Yes bool `json:"yes"`
	// Why is the answer in one sentence.
	Why   string `json:"why"`
	From  From   `json:"from"`
	To    To     `json:"to"`
	Name  string `json:"name,omitempty"` // under which the export is asked for
	Trips []Trip `json:"trips"`          // one for each cluster that may answer
	Lines []Line `json:"lines"`          // of the topology that decide it
}

// Trip is the way to one cluster.
type Trip struct {
	Cluster string `json:"cluster"`
	Yes     bool   `json:"yes"`
	Why     string `json:"why,omitempty"` // of no
	// Decided is the path of the topology that decides it, of an export: who allows it, or
	// what keeps the packets from it.
	Decided string       `json:"decided,omitempty"`
	Asked   []netip.Addr `json:"asked,omitempty"` // what the client asks for
	Links   []Link       `json:"links,omitempty"` // in order; none within a cluster
	// Carried are the addresses under which the other cluster is asked.
	Carried []netip.Addr `json:"carried,omitempty"`
	// Sources are the addresses, ranges and prefixes as one of which it sees the client;
	// none when it sees its own address.
	Sources []string `json:"sources,omitempty"`
	// Served says what is behind: pods of the export, one pod, or a ClusterIP.
	Served string `json:"served,omitempty"`
}

// Link is a link between two clusters on the way.
type Link struct {
	From   string `json:"from"` // cluster, or cluster/gateway where First is known
	To     string `json:"to"`
	Driver string `json:"driver"`
	// Picked says of ends whose nodes labels pick which nodes may be it, by cluster/gateway.
	Picked map[string]string `json:"picked,omitempty"`
}

// Line is a place in the topology, and what it says here.
type Line struct {
	Path   string `json:"path"`
	Source string `json:"source,omitempty"` // file:line
	Text   string `json:"text"`
}

// First gives the gateways of the link that a pair of clusters prefers.
type First func(a, b string) (local, remote string, ok bool)

// Clusterset is what is asked.
type Clusterset struct {
	set   *reach.Set
	graph *fabric.Graph
	first First
}

// New prepares a fabric, which must not change afterwards.
func New(f *fabric.Fabric, first First) *Clusterset {
	return &Clusterset{set: reach.New(f), graph: f.Graph(), first: first}
}

// question is one with what it is about.
type question struct {
	*Clusterset
	from   From
	to     To
	own    *fabric.Cluster
	export *fabric.Export
	port   fabric.Port
	answer *Answer
}

// Ask answers a question. It fails when the clusterset has no such cluster, port or
// address; a name that nobody exports is an answer.
func (c *Clusterset) Ask(from From, to To) (*Answer, error) {
	q := &question{Clusterset: c, from: from, to: to, own: c.set.Cluster(from.Cluster)}
	if q.own == nil {
		return nil, fmt.Errorf("there is no cluster %s in the topology", from.Cluster)
	}
	q.answer = &Answer{From: from, To: to, Trips: []Trip{}, Lines: []Line{}}
	if to.Export == "" {
		return q.address()
	}
	return q.name()
}

func (q *question) line(path, format string, args ...any) {
	l := Line{Path: path, Text: fmt.Sprintf(format, args...)}
	if !slices.Contains(q.answer.Lines, l) {
		q.answer.Lines = append(q.answer.Lines, l)
	}
}

// String names the client for people.
func (f From) String() string {
	switch {
	case f.Node:
		return "processes on nodes of " + f.Cluster
	case f.Pod != "":
		return "pod " + f.Namespace + "/" + f.Pod + " of " + f.Cluster
	}
	return "pods of " + f.Cluster
}

// name answers for an export.
func (q *question) name() (*Answer, error) {
	f := q.set.Fabric()
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
		return q.undeclared(namespace), nil
	}
	path := "exports[" + q.to.Export + "]"
	if err := q.choosePort(); err != nil {
		return nil, err
	}
	q.line(path, "the export")
	if q.to.Cluster != "" && q.export.Part(q.to.Cluster) == nil {
		q.answer.Why = fmt.Sprintf("%s is not exported by %s", q.to.Export, q.to.Cluster)
		names := make([]string, len(q.export.Clusters))
		for i := range q.export.Clusters {
			names[i] = q.export.Clusters[i].Name
		}
		q.line(path+".clusters", "exported by %s", strings.Join(names, ", "))
		return q.answer, nil
	}
	for i := range q.export.Clusters {
		if part := &q.export.Clusters[i]; q.to.Cluster == "" || q.to.Cluster == part.Name {
			q.answer.Trips = append(q.answer.Trips, q.toPart(part))
			q.line(path+".clusters["+part.Name+"]", "%s exports it", part.Name)
		}
	}
	if q.export.Allow != nil {
		q.line(path+".allow", "open to %s", strings.Join(q.export.Allow, ", "))
	}
	if len(q.answer.Trips) > 1 && q.export.Type == fabric.ClusterSetIP {
		q.line(path+".balance", "%s", q.export.Balance.Policy)
	}
	return q.conclude(q.to.Export + ":" + portText(q.port)), nil
}

// undeclared answers for a name that the topology does not have: clusters may export it.
func (q *question) undeclared(namespace string) *Answer {
	d, id := q.set.Fabric().DynamicExports, q.to.Export
	if !d.Matches(namespace) {
		q.answer.Why = fmt.Sprintf("nobody exports %s: it is not in exports, and clusters may not export from namespace %s by themselves", id, namespace)
		return q.answer
	}
	q.line("dynamicExports", "clusters may export from namespace %s by themselves", namespace)
	for _, c := range q.set.Fabric().Clusters {
		if c.Name == q.from.Cluster || q.to.Cluster != "" && q.to.Cluster != c.Name || !d.Allows(namespace, c.Name) {
			continue
		}
		t := Trip{Cluster: c.Name, Served: "what it exports by itself",
			Yes: q.set.Dynamic(c.Name).Reached(q.from.Cluster, fabric.Port{})}
		t.Decided = "dynamicExports"
		if t.Links = q.links(c.Name); !t.Yes {
			t.Why, t.Decided = q.noPath(c.Name)
		}
		q.answer.Trips = append(q.answer.Trips, t)
	}
	q.answer.Yes = slices.ContainsFunc(q.answer.Trips, func(t Trip) bool { return t.Yes })
	q.answer.Why = fmt.Sprintf("%s reach %s as soon as a cluster makes a ServiceExport of it: hawser show exports", q.from, id)
	if !q.answer.Yes {
		q.answer.Why = fmt.Sprintf("no cluster to which %s has a path may export %s", q.from.Cluster, id)
	}
	return q.answer
}

// choosePort finds the port that is meant.
func (q *question) choosePort() error {
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
		return fmt.Errorf("%s has no port %q: it has %s", q.to.Export, q.to.Port, portsText(q.export))
	}
	q.port = fabric.Port{Protocol: protocol, Port: number}
	return nil
}

func portText(p fabric.Port) string {
	return strings.TrimSuffix(fmt.Sprintf("%d/%s", p.Port, p.Protocol), "/TCP")
}

func portsText(e *fabric.Export) string {
	texts := make([]string, len(e.Ports))
	for i, p := range e.Ports {
		texts[i] = portText(p)
		if p.Name != "" {
			texts[i] += " (" + p.Name + ")"
		}
	}
	return strings.Join(texts, ", ")
}

// toPart follows a request to one cluster's part of the export.
func (q *question) toPart(part *fabric.ExportCluster) Trip {
	t := Trip{Cluster: part.Name, Served: "pods of " + q.to.Export}
	path := "exports[" + q.export.ID() + "]"
	t.Decided = path + ".clusters[" + part.Name + "]"
	o := q.set.Export(q.export, part.Name)
	t.Asked = o.At()
	if q.export.Type == fabric.ClusterSetIP && q.to.Cluster == "" {
		t.Asked = q.export.VIPs
	}
	if part.Name == q.from.Cluster {
		// An exporting cluster may always reach itself.
		t.Yes = slices.ContainsFunc(q.export.Ports,
			func(p fabric.Port) bool { return reach.PortID(p) == reach.PortID(q.port) })
		if !t.Yes {
			t.Why, t.Decided = q.noPort()
		}
		return t
	}
	t.Links = q.links(part.Name)
	t.Yes = q.follow(&t, o.Facts())
	switch {
	case !t.Yes:
		t.Why, t.Decided = q.partWhy(part.Name, o)
	case q.export.Allow != nil:
		t.Decided = path + ".allow.clusters[" + q.from.Cluster + "]"
	}
	return t
}

func (q *question) noPort() (why, decided string) {
	return fmt.Sprintf("%s has no port %s: it has %s", q.to.Export, portText(q.port), portsText(q.export)),
		"exports[" + q.export.ID() + "].ports"
}

// partWhy says what keeps packets from a part, and the path of the topology that does.
func (q *question) partWhy(cluster string, o *reach.Offer) (why, decided string) {
	path := "exports[" + q.export.ID() + "]"
	switch declared := slices.ContainsFunc(q.export.Ports,
		func(p fabric.Port) bool { return reach.PortID(p) == reach.PortID(q.port) }); {
	case !q.set.Connected(q.from.Cluster, cluster):
		return q.noPath(cluster)
	case !q.export.Allows(q.from.Cluster):
		return fmt.Sprintf("the allow list of %s does not have %s", q.to.Export, q.from.Cluster), path + ".allow"
	case !declared:
		return q.noPort()
	case len(o.At()) == 0:
		return fmt.Sprintf("pods of %s have no address that others know: set hostnames of the export", cluster), path
	}
	return fmt.Sprintf("%s and %s have no address family in common", q.from.Cluster, cluster), "clusters[" + q.from.Cluster + "].podCIDRs"
}

func (q *question) noPath(cluster string) (why, decided string) {
	q.line("connectivity", "links: %s", q.set.Fabric().Shape.Mode)
	decided = "connectivity"
	for _, name := range []string{q.from.Cluster, cluster} {
		if c := q.set.Cluster(name); c != nil && len(c.Gateways) == 0 {
			decided = "clusters[" + name + "].gateways"
		}
	}
	return fmt.Sprintf("%s and %s have no path to each other", q.from.Cluster, cluster), decided
}

// follow sends packets for all that is asked for, and notes what comes of them.
func (q *question) follow(t *Trip, facts reach.Facts) bool {
	yes := false
	if !q.set.Connected(q.from.Cluster, t.Cluster) {
		return false
	}
	for _, dst := range t.Asked {
		src, ok := q.source(dst)
		if !ok {
			continue
		}
		number := uint16(q.port.Port)
		way := q.set.Path(q.from.Cluster, t.Cluster, reach.Packet{
			Protocol: strings.ToLower(q.port.Protocol), Src: netip.AddrPortFrom(src, reach.ClientPort),
			Dst: netip.AddrPortFrom(dst, number),
		}, facts)
		if !way.Arrives() {
			continue
		}
		yes = true
		for _, d := range way.Out.Dst {
			if q.set.Has(t.Cluster, d.Addr()) && !slices.Contains(t.Carried, d.Addr()) {
				t.Carried = append(t.Carried, d.Addr())
			}
		}
		q.sources(t, src, way.Out.Srcs)
	}
	return yes
}

// source is the client's own address of a family.
func (q *question) source(like netip.Addr) (netip.Addr, bool) {
	if q.from.Addr.IsValid() {
		return q.from.Addr, q.from.Addr.Is4() == like.Is4()
	}
	if q.from.Node {
		// Some address outside of the clusters' prefixes.
		if like.Is4() {
			return netip.AddrFrom4([4]byte{192, 0, 2, 1}), q.own.Has(4)
		}
		return netip.MustParseAddr("2001:db8::1"), q.own.Has(6)
	}
	for _, a := range reach.SomePod(q.own) {
		if a.Is4() == like.Is4() {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// sources notes under which addresses the other cluster sees the client.
func (q *question) sources(t *Trip, src netip.Addr, srcs []netip.Addr) {
	path := "clusters[" + q.from.Cluster + "]"
	ruled := false
	for i := range q.own.EgressRules {
		r := &q.own.EgressRules[i]
		if q.from.Node || q.from.Namespace != r.Namespace {
			continue
		}
		if len(r.MatchLabels) > 0 {
			q.line(path+".egress["+r.Name+"]", "pods with labels %v go out as %s", r.MatchLabels,
				strings.Join(fabric.Ranges(r.IPs), ", "))
			continue
		}
		q.line(path+".egress["+r.Name+"]", "pods of namespace %s go out as %s", r.Namespace,
			strings.Join(fabric.Ranges(r.IPs), ", "))
		srcs = slices.DeleteFunc(slices.Clone(r.IPs), func(a netip.Addr) bool { return a.Is4() != src.Is4() })
		ruled = true
	}
	if ruled {
		t.Sources = append(t.Sources, fabric.Ranges(srcs)...)
		return
	}
	switch {
	case len(srcs) == 0:
		q.line(path, "%s is flat: others see its pods' own addresses", q.from.Cluster)
	case !q.from.Addr.IsValid() && len(srcs) == 1 && slices.ContainsFunc(q.own.Mappings,
		func(m fabric.Mapping) bool { return m.Pods.Contains(src) }): // the address stood for any pod's
		for _, m := range q.own.Mappings {
			if m.Global.Addr().Is4() == src.Is4() {
				t.Sources = append(t.Sources, m.Global.String())
				q.line(path, "pods of %s go out as addresses of %s", m.Pods, m.Global)
			}
		}
	default:
		t.Sources = append(t.Sources, fabric.Ranges(srcs)...)
		q.line(path, "%s goes out as %s", q.from.Cluster, strings.Join(fabric.Ranges(srcs), ", "))
	}
	slices.Sort(t.Sources)
	t.Sources = slices.Compact(t.Sources)
}

// links gives the links on the way to a cluster.
func (q *question) links(to string) []Link {
	way := q.graph.Paths(q.from.Cluster, nil)[to]
	if len(way) > 1 {
		q.line("connectivity", "%s reaches %s through %s", q.from.Cluster, to, strings.Join(way[:len(way)-1],
			", then "))
	}
	var out []Link
	at := q.from.Cluster
	for _, next := range way {
		l := Link{From: at, To: next, Driver: q.set.Fabric().Link(at, next).Driver}
		if local, remote, ok := q.first(at, next); ok {
			l.From, l.To = at+"/"+local, next+"/"+remote
			picked := map[string]string{}
			for name, g := range map[string]*fabric.Gateway{l.From: q.set.Cluster(at).Gateway(local), l.To: q.set.Cluster(next).Gateway(remote)} {
				if g != nil && g.Picked() {
					picked[name] = g.Where()
				}
			}
			if len(picked) > 0 {
				l.Picked = picked
			}
		}
		out = append(out, l)
		at = next
	}
	return out
}

// address answers for one.
func (q *question) address() (*Answer, error) {
	number := 0
	if _, err := fmt.Sscan(q.to.Port, &number); err != nil || number < 1 || number > 65535 {
		return nil, fmt.Errorf("port %q of %s: give a number, as in %s:80", q.to.Port, q.to.Addr, q.to.Addr)
	}
	q.port = fabric.Port{Protocol: strings.ToUpper(q.to.Protocol), Port: number}
	at := netip.AddrPortFrom(q.to.Addr, uint16(number)).String()
	for _, e := range q.set.Named(q.to.Addr) {
		if q.to.Cluster != "" {
			break
		}
		q.export, q.to.Export = e, e.ID()
		q.line("exports["+e.ID()+"]", "%s is an address of this export", q.to.Addr)
		for i := range e.Clusters {
			part := &e.Clusters[i]
			ofHost := slices.ContainsFunc(part.Hosts, func(h fabric.Host) bool { return slices.Contains(h.IPs, q.to.Addr) })
			if !slices.Contains(e.VIPs, q.to.Addr) && !slices.Contains(q.set.Export(e, part.Name).At(), q.to.Addr) && !ofHost {
				continue
			}
			t := q.toPart(part)
			t.Asked = []netip.Addr{q.to.Addr}
			q.answer.Trips = append(q.answer.Trips, t)
		}
		if e.Allow != nil {
			q.line("exports["+e.ID()+"].allow", "open to %s", strings.Join(e.Allow, ", "))
		}
		return q.conclude(at), nil
	}
	owner := q.to.Cluster
	if owner == "" {
		owner = q.set.Owner(q.to.Addr, q.from.Cluster)
	}
	switch {
	case owner == "":
		q.answer.Why = fmt.Sprintf("%s leads to no other cluster: it is no address of an export, of a global block or of a flat cluster", q.to.Addr)
		return q.answer, nil
	case q.set.Cluster(owner) == nil:
		return nil, fmt.Errorf("there is no cluster %s in the topology", owner)
	}
	t := Trip{Cluster: owner, Asked: []netip.Addr{q.to.Addr}, Links: q.links(owner), Served: "that address"}
	if owner == q.from.Cluster {
		q.answer.Why = "both are in " + owner + ": Hawser has no part in it"
		q.answer.Yes = true
		return q.answer, nil
	}
	t.Yes = q.follow(&t, nil)
	if !t.Yes {
		t.Why = q.addressWhy(owner)
	} else {
		q.line("clusters["+owner+"]", "%s is flat: its own addresses are reached", owner)
	}
	q.answer.Trips = append(q.answer.Trips, t)
	return q.conclude(at), nil
}

func (q *question) addressWhy(owner string) string {
	c := q.set.Cluster(owner)
	path := "clusters[" + owner + "]"
	switch {
	case !q.set.Connected(q.from.Cluster, owner):
		why, _ := q.noPath(owner)
		return why
	case slices.ContainsFunc(c.GlobalCIDRs, func(p netip.Prefix) bool { return p.Contains(q.to.Addr) }):
		q.line(path, "global block of %s", owner)
		return fmt.Sprintf("no export has %s: pods behind it get answers only", q.to.Addr)
	case c.Hides(fabric.Family(q.to.Addr)):
		q.line(path, "%s hides its own addresses behind its global block", owner)
		return fmt.Sprintf("%s is hidden behind the global block of %s: ask for an export", q.to.Addr, owner)
	}
	return fmt.Sprintf("%s is no address that %s reaches in %s", q.to.Addr, q.from.Cluster, owner)
}

// conclude says yes when one of the trips does.
func (q *question) conclude(what string) *Answer {
	a := q.answer
	var in, why []string
	for _, t := range a.Trips {
		if t.Yes {
			in = append(in, t.Cluster)
		} else if !slices.Contains(why, t.Why) {
			why = append(why, t.Why)
		}
	}
	if a.Yes = len(in) > 0; a.Yes {
		a.Why = fmt.Sprintf("%s: %s is reached in %s", q.from, what, strings.Join(in, ", "))
		return a
	}
	a.Why = strings.Join(why, "; ")
	return a
}
