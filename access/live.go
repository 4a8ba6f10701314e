package access

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// Verdicts of Live.
const (
	Delivered    = "yes"
	NotDelivered = "no"
	Unknown      = "unknown" // a decisive report is missing
)

// States of a link.
const (
	Alive      = "alive"
	Connecting = "connecting"
	Down       = "down"
)

// Live is the state of an answer according to agents.
type Live struct {
	Verdict string `json:"verdict"` // yes | no | unknown
	Reason  string `json:"reason"`  // in one sentence
	// Missing lists problems, whether or not traffic arrives.
	Missing []string `json:"missing"`
	// Unknown lists failed queries.
	Unknown []string `json:"unknown"`
}

// LiveDestination is the state of the path to one cluster according to agents.
type LiveDestination struct {
	Verdict string   `json:"verdict"`
	Reasons []string `json:"reasons,omitempty"` // of no and unknown
	Hops    []Hop    `json:"hops,omitempty"`    // in order; none within a cluster
	// Ready reports whether the cluster's own agents see a ready backend: yes | no | unknown.
	// It is empty for addresses without known backends.
	Ready    string   `json:"ready,omitempty"`
	Backends []string `json:"backends,omitempty"` // some of the ready ones
	// Policies describes the known NetworkPolicies that may drop packets. They do not change
	// the verdict.
	Policies []string `json:"policies,omitempty"`
}

// Hop is the part of a path from one cluster to the next.
type Hop struct {
	From  string     `json:"from"`
	To    string     `json:"to"`
	Links []LiveLink `json:"links"`
}

// Alive reports whether a link of the hop may be alive.
func (h *Hop) Alive() bool {
	return slices.ContainsFunc(h.Links, func(k LiveLink) bool { return k.State == Alive || k.State == Unknown })
}

// LiveLink is a link between two gateways as both ends report it.
type LiveLink struct {
	From   string `json:"from"` // cluster/gateway
	To     string `json:"to"`
	Driver string `json:"driver"`
	State  string `json:"state"` // alive | connecting | down | unknown
	InUse  bool   `json:"inUse"` // nodes of the first cluster send through it
	// Nodes are the nodes that send through the link; empty if all do.
	Nodes []string `json:"nodes,omitempty"`
	RTT   int64    `json:"rttMicros,omitempty"` // average; 0 = not reported
	// ActiveNodes are the current nodes of gateways with a node selector, by cluster/gateway,
	// as far as agents report them.
	ActiveNodes map[string]string `json:"activeNodes,omitempty"`
	// EndpointResults describes at which endpoint the other end reaches a gateway and why, by
	// cluster/gateway. It has only what agents report.
	EndpointResults map[string]string `json:"endpointResults,omitempty"`
}

// reportIndex indexes reports by cluster and by dynamic export.
type reportIndex struct {
	*AgentReports
	byCluster map[string][]*status.Status
	dynamic   map[string][]string // by export, namespace/name: clusters that created it
}

func newReportIndex(r *AgentReports) *reportIndex {
	x := &reportIndex{AgentReports: r, byCluster: map[string][]*status.Status{}, dynamic: map[string][]string{}}
	for i := range r.Agents {
		s := &r.Agents[i]
		x.byCluster[s.Cluster] = append(x.byCluster[s.Cluster], s)
		for j := range s.Exports {
			e := &s.Exports[j]
			if !e.Dynamic {
				continue
			}
			for k := range e.Clusters {
				x.dynamic[e.Namespace+"/"+e.Name] = append(x.dynamic[e.Namespace+"/"+e.Name], e.Clusters[k].Name)
			}
		}
	}
	for id, list := range x.dynamic {
		x.dynamic[id] = slices.Compact(sorted(list))
	}
	return x
}

// exporters returns the clusters that created an export, if agents report one.
func (x *reportIndex) exporters(id string) (clusters []string, reported bool) {
	if x == nil {
		return nil, false
	}
	clusters, reported = x.dynamic[id]
	return clusters, reported
}

// liveCheck compares an answer with the reports.
type liveCheck struct {
	*reportIndex
	fabric *fabric.Fabric
	answer *Answer
	export string // namespace/name; empty for an address without an export
	// doubts has reasons not to trust the reports of a cluster.
	doubts map[string][]string
	out    *Live
}

// addLive adds the live parts to an answer that the topology allows.
func (q *query) addLive() {
	a := q.answer
	if q.reports == nil || !a.Allowed || len(a.Destinations) == 0 {
		return
	}
	l := &liveCheck{reportIndex: q.reports, fabric: q.model.Fabric(), answer: a, export: a.To.Export,
		doubts: map[string][]string{},
		out:    &Live{Verdict: NotDelivered, Missing: []string{}, Unknown: []string{}}}
	a.Live = l.out
	if a.To.Export == "" {
		if e := q.exportAt(a.To); e != nil {
			l.export = e.ID()
		}
	}
	for i := range a.Destinations {
		if t := &a.Destinations[i]; t.Allowed {
			t.Live = l.destination(t)
		}
	}
	l.clusters()
	for t := range l.allowed() {
		for _, name := range l.pathClusters(t) {
			for _, text := range l.doubts[name] {
				t.Live.add(finding{Unknown, text})
			}
		}
		if v := t.Live.Verdict; v == Delivered || v == Unknown && l.out.Verdict == NotDelivered {
			l.out.Verdict = v
		}
	}
	why := strings.Join(a.LiveReasons(), "; ")
	switch l.out.Verdict {
	case Delivered:
		l.out.Reason = l.delivered()
	case Unknown:
		l.out.Reason = "allowed; not known to arrive: " + why
	default:
		l.out.Reason = "allowed, but nothing arrives: " + why
	}
}

// LiveReasons returns why the destinations have the live verdict of the answer, each reason once.
func (a *Answer) LiveReasons() []string {
	var out []string
	for i := range a.Destinations {
		l := a.Destinations[i].Live
		if a.Live == nil || l == nil || l.Verdict != a.Live.Verdict {
			continue
		}
		for _, why := range l.Reasons {
			if !slices.Contains(out, why) {
				out = append(out, why)
			}
		}
	}
	return out
}

// allowed returns the destinations that the topology allows.
func (l *liveCheck) allowed() iter.Seq[*Destination] {
	return func(yield func(*Destination) bool) {
		for i := range l.answer.Destinations {
			if t := &l.answer.Destinations[i]; t.Allowed && !yield(t) {
				return
			}
		}
	}
}

// pathClusters returns the clusters on the path to a destination.
func (l *liveCheck) pathClusters(t *Destination) []string {
	out := []string{l.answer.From.Cluster, t.Cluster}
	for _, h := range t.Live.Hops {
		out = append(out, h.From, h.To)
	}
	return slices.Compact(sorted(out))
}

// delivered returns a sentence with the clusters in which traffic arrives, and the links.
func (l *liveCheck) delivered() string {
	var in []string
	for t := range l.allowed() {
		if t.Live.Verdict != Delivered {
			continue
		}
		text := t.Cluster
		for _, h := range t.Live.Hops {
			var used []string
			for _, k := range h.Links {
				if k.InUse {
					used = append(used, k.From+" - "+k.To)
				}
			}
			text += " over " + strings.Join(used, " and ")
		}
		in = append(in, text)
	}
	what := l.answer.To.Addr.String()
	if l.answer.To.Export != "" {
		what = l.answer.To.Export
	}
	if l.answer.To.Port != "" {
		what += ":" + l.answer.To.Port
	}
	return fmt.Sprintf("%s: %s is reached now in %s", l.answer.From, what, strings.Join(in, ", "))
}

func (l *liveCheck) missing(format string, args ...any) { add(&l.out.Missing, format, args...) }

func (l *liveCheck) unknown(format string, args ...any) { add(&l.out.Unknown, format, args...) }

func add(list *[]string, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}

// noAgentsReason returns that no agent of a cluster answered, and the reason. It adds the text to
// Unknown.
func (l *liveCheck) noAgentsReason(cluster string) string {
	text := "no agent of " + cluster + " answered"
	if why := l.Unreachable[cluster]; why != "" {
		text += ": " + why
	}
	l.unknown("%s", text)
	return text
}

// finding is the result of one check of a destination. The worst finding of a destination counts.
type finding struct{ verdict, why string }

var noFinding = finding{verdict: Delivered}

func (t *LiveDestination) add(f finding) {
	rank := []string{Delivered, Unknown, NotDelivered}
	if slices.Index(rank, f.verdict) > slices.Index(rank, t.Verdict) {
		t.Verdict, t.Reasons = f.verdict, nil
	}
	if f.verdict == t.Verdict && f.why != "" && !slices.Contains(t.Reasons, f.why) {
		t.Reasons = append(t.Reasons, f.why)
	}
}

// destination returns what agents report about the path to one cluster.
func (l *liveCheck) destination(d *Destination) *LiveDestination {
	t := &LiveDestination{Verdict: Delivered, Policies: slices.Concat(l.SourcePolicies, l.DestinationPolicies[d.Cluster])}
	cluster := d.Cluster
	from := l.answer.From.Cluster
	if len(l.byCluster[from]) == 0 {
		t.add(finding{Unknown, l.noAgentsReason(from)})
	} else {
		t.add(l.resolved(from))
		t.add(l.inside(from))
		t.add(l.connected(from, cluster))
	}
	if cluster != from {
		l.hops(t, from, cluster)
	}
	if l.export != "" {
		l.readiness(t, from, cluster)
	} else if len(l.byCluster[cluster]) == 0 {
		t.add(finding{Unknown, l.noAgentsReason(cluster)})
	}
	return t
}

// resolved checks that agents answer DNS queries of pods of a cluster.
func (l *liveCheck) resolved(cluster string) finding {
	if l.answer.To.Export == "" {
		return noFinding // an address needs no DNS
	}
	if why := l.Unresolved[cluster]; why != "" {
		l.missing("%s: %s", cluster, why)
		return finding{Unknown, "pods of " + cluster + " may not resolve names of the clusterset"}
	}
	var mute []string // nodes
	for _, s := range l.byCluster[cluster] {
		if s.DNSUnavailable {
			mute = append(mute, s.Node)
		}
	}
	if len(mute) == 0 {
		return noFinding
	}
	text := fmt.Sprintf("names of %s are not answered on %s of %s", l.fabric.Domain, strings.Join(sorted(mute), ", "), cluster)
	l.missing("%s", text)
	if len(mute) == len(l.byCluster[cluster]) {
		return finding{NotDelivered, text}
	}
	return finding{Unknown, text}
}

// inside checks that agents of a cluster see its pods in podCIDRs. Packets of other pods are
// dropped.
func (l *liveCheck) inside(cluster string) finding {
	var outside []string // nodes
	for _, s := range l.byCluster[cluster] {
		for _, p := range s.Problems {
			if p.Code == status.PodsOutsideCIDRs {
				outside = append(outside, s.Node)
			}
		}
	}
	outside = slices.Compact(sorted(outside))
	if len(outside) == 0 {
		return noFinding
	}
	text := fmt.Sprintf("pods of %s on %s are outside of its podCIDRs, and their packets are dropped", cluster, strings.Join(outside, ", "))
	if len(outside) == len(l.byCluster[cluster]) {
		return finding{NotDelivered, text}
	}
	return finding{Unknown, text}
}

// connected checks that nodes of a cluster send requests for an export to the other cluster. They
// do not if a network that the node is connected to has the export's address.
func (l *liveCheck) connected(from, to string) finding {
	var nodes []string
	for _, s := range l.byCluster[from] {
		for _, p := range s.Problems {
			if p.Code == status.ConnectedExport && p.Path == "exports["+l.export+"].clusters["+to+"]" {
				nodes = append(nodes, s.Node)
				l.missing("%s/%s: %s of %s: %s", from, s.Node, l.export, to, p.Text)
			}
		}
	}
	nodes = slices.Compact(sorted(nodes))
	if len(nodes) == 0 {
		return noFinding
	}
	text := fmt.Sprintf("%s of %s has the address of a network that %s of %s is connected to", l.export, to, strings.Join(nodes, ", "), from)
	if len(nodes) == len(l.byCluster[from]) {
		return finding{NotDelivered, text}
	}
	return finding{Unknown, text}
}

// hops adds the links that nodes use to reach a cluster.
func (l *liveCheck) hops(t *LiveDestination, at, cluster string) {
	for been := []string{}; at != cluster && !slices.Contains(been, at); {
		been = append(been, at)
		next := ""
		for _, s := range l.senders(at, len(been) > 1) {
			if p := pathTo(s, cluster); p != nil && (next == "" || p.Rank != status.Ranks()[0]) {
				next = p.Cluster
				if len(p.Transit) > 0 {
					next = p.Transit[0]
				}
			}
		}
		if next == "" { // use the topology's path
			path := l.fabric.Graph().Paths(at, nil)[cluster]
			if len(path) == 0 {
				t.add(finding{NotDelivered, fmt.Sprintf("%s has no path to %s", at, cluster)})
				return
			}
			next = path[0]
		}
		h := Hop{From: at, To: next, Links: l.links(at, next)}
		t.add(l.used(&h, cluster, len(been) > 1))
		t.Hops = append(t.Hops, h)
		at = next
	}
}

// senders returns the agents whose path counts: all agents of a cluster, or only its gateways if it
// forwards transit traffic.
func (l *liveCheck) senders(cluster string, passes bool) []*status.Status {
	return slices.DeleteFunc(slices.Clone(l.byCluster[cluster]), func(s *status.Status) bool { return passes && s.Gateway == "" })
}

func pathTo(s *status.Status, cluster string) *status.Path {
	i := slices.IndexFunc(s.Paths, func(p status.Path) bool { return p.Cluster == cluster })
	if i < 0 {
		return nil
	}
	return &s.Paths[i]
}

// used marks the links of h that traffic from its cluster to target uses, and returns whether that
// traffic arrives.
func (l *liveCheck) used(h *Hop, target string, passes bool) finding {
	senders := l.senders(h.From, passes)
	if len(senders) == 0 {
		return finding{Unknown, l.noAgentsReason(h.From)}
	}
	var cut, unclear []string
	users := map[int][]string{}
	for _, s := range senders {
		p := pathTo(s, target)
		if p == nil || p.Rank == status.Ranks()[0] {
			cut = append(cut, s.Node)
			continue
		}
		i := slices.IndexFunc(h.Links, func(k LiveLink) bool {
			return k.From == h.From+"/"+p.LocalGateway && k.To == h.To+"/"+p.RemoteGateway
		})
		switch {
		case i < 0 || h.Links[i].State == Unknown:
			unclear = append(unclear, s.Node)
		case h.Links[i].State != Alive:
			cut = append(cut, s.Node)
		}
		if i >= 0 {
			users[i] = append(users[i], s.Node)
		}
	}
	for i, list := range users {
		h.Links[i].InUse = true
		if len(list) < len(senders) {
			slices.Sort(list)
			h.Links[i].Nodes = list
		}
	}
	switch between := h.From + " and " + h.To; {
	case !h.Alive():
		return finding{NotDelivered, "no link between " + between + " is alive"}
	case len(cut) == len(senders):
		return finding{NotDelivered, fmt.Sprintf("no node of %s has a way to %s that is alive", h.From, target)}
	case len(cut) > 0:
		return finding{Unknown, fmt.Sprintf("%s of %s has no path to %s that is alive", strings.Join(cut, ", "), h.From, target)}
	case len(unclear) > 0:
		return finding{Unknown, fmt.Sprintf("no gateway reports the link between %s that %s uses", between, strings.Join(unclear, ", "))}
	}
	return noFinding
}

// links returns the links between two clusters, as both ends report them.
func (l *liveCheck) links(from, to string) []LiveLink {
	f := l.fabric
	type ends [2]string
	all := map[ends]*LiveLink{}
	hold := func(k *LiveLink, cluster, gateway string) { // adds the current node of a gateway with a node selector
		g := f.Cluster(cluster).Gateway(gateway)
		for _, s := range l.byCluster[cluster] {
			if g != nil && g.HasNodeSelector() && s.Gateway == gateway {
				put(&k.ActiveNodes, cluster+"/"+gateway, s.Node)
			}
		}
	}
	at := func(a, b string) *LiveLink {
		if all[ends{a, b}] == nil {
			k := &LiveLink{From: from + "/" + a, To: to + "/" + b, Driver: f.Link(from, to).Driver, State: Unknown}
			hold(k, from, a)
			hold(k, to, b)
			all[ends{a, b}] = k
		}
		return all[ends{a, b}]
	}
	if one, other := f.Cluster(from), f.Cluster(to); one != nil && other != nil {
		for _, a := range one.Gateways {
			for _, b := range other.Gateways {
				at(a.Name, b.Name)
			}
		}
	}
	note := func(k *LiveLink, c *status.Connection) {
		if c.EndpointReason != "" {
			put(&k.EndpointResults, c.RemoteCluster+"/"+c.RemoteGateway, c.EndpointReason)
		}
		state := map[string]string{status.Connected: Alive, status.Disconnected: Down, status.Connecting: Connecting}[c.Status]
		// Probes are round trips. If the ends disagree, the end without a recent reply is
		// right.
		if k.State == Unknown || k.State == Alive {
			k.State = cmp.Or(state, Unknown)
		}
		if c.Driver != "" {
			k.Driver = c.Driver
		}
		if k.RTT == 0 && c.RTT != nil && state == Alive {
			k.RTT = c.RTT.Avg
		}
	}
	for _, s := range l.byCluster[from] {
		for i := range s.Connections {
			if c := &s.Connections[i]; c.RemoteCluster == to {
				note(at(c.Gateway, c.RemoteGateway), c)
			}
		}
	}
	for _, s := range l.byCluster[to] {
		for i := range s.Connections {
			if c := &s.Connections[i]; c.RemoteCluster == from {
				note(at(c.RemoteGateway, c.Gateway), c)
			}
		}
	}
	out := make([]LiveLink, 0, len(all))
	for _, k := range all {
		if k.State != Alive {
			k.RTT = 0
		}
		out = append(out, *k)
	}
	slices.SortFunc(out, func(a, b LiveLink) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return out
}

// put sets a key of a map, which may be nil.
func put(to *map[string]string, key, value string) {
	if *to == nil {
		*to = map[string]string{}
	}
	(*to)[key] = value
}

// readiness adds the ready backends of the export in a cluster, as its own agents report them. It
// checks that the agents of the client's cluster know about them.
func (l *liveCheck) readiness(t *LiveDestination, from, cluster string) {
	own, heard := l.part(cluster, cluster), l.part(from, cluster)
	t.Ready = cmp.Or(own.ready, Unknown)
	t.Backends = own.backends
	if lacks := cmp.Or(own.lacks, heard.lacks); lacks != "" {
		t.add(finding{NotDelivered, lacks})
		return
	}
	if own.ready == "no" {
		text := fmt.Sprintf("no backend of %s is ready in %s", l.export, cluster)
		if why := l.problems(cluster); len(why) > 0 {
			text += ": " + strings.Join(why, "; ")
		}
		l.missing("%s", text)
		t.add(finding{NotDelivered, text})
		return
	}
	switch {
	case len(l.byCluster[cluster]) == 0:
		text := l.noAgentsReason(cluster)
		if heard.ready != "" && heard.ready != Unknown {
			text += fmt.Sprintf("; %s heard last that ready backends of %s there: %s", from, l.export, heard.ready)
		}
		t.add(finding{Unknown, text})
	case own.ready != "yes":
		t.add(finding{Unknown, fmt.Sprintf("agents of %s do not agree that a backend of %s is ready", cluster, l.export)})
	}
	switch {
	case cluster == from || heard.ready == "yes" || len(l.byCluster[from]) == 0:
	case heard.ready == "no":
		t.add(finding{NotDelivered, fmt.Sprintf("%s has not heard of a ready backend of %s in %s", from, l.export, cluster)})
	default:
		t.add(finding{Unknown, fmt.Sprintf("not all nodes of %s have heard from %s which backends are ready", from, cluster)})
	}
}

// problems returns the causes that agents of a cluster report for its part of the export.
func (l *liveCheck) problems(cluster string) []string {
	var out []string
	for _, s := range l.byCluster[cluster] {
		for _, p := range s.Problems {
			// The problem without endpoints is the effect, not a cause.
			if p.Code != status.ExportWithoutEndpoints && p.Path == "exports["+l.export+"].clusters["+cluster+"]" && !slices.Contains(out, p.Text) {
				out = append(out, p.Text)
			}
		}
	}
	return out
}

// part is a cluster's part of the export as the agents of one cluster report it.
type part struct {
	ready    string // yes | no | unknown; empty without a report
	backends []string
	lacks    string // why the agents ignore the export
}

// part returns cluster's part of the export as the agents of asked report it.
func (l *liveCheck) part(asked, cluster string) part {
	var out part
	without, shut, has := 0, 0, 0
	for _, s := range l.byCluster[asked] {
		if s.Digest == "" {
			continue
		}
		e, p := exportIn(s, l.export, cluster)
		if p == nil {
			without++
			continue
		}
		if from := l.answer.From.Cluster; len(e.Allow) > 0 && cluster != from && !slices.Contains(e.Allow, from) {
			shut++
			continue
		}
		if has++; out.ready == "" || out.ready == p.Ready {
			out.ready = p.Ready
		} else {
			out.ready = Unknown
		}
		if len(p.Backends)+len(p.Hosts) > 0 && out.backends == nil {
			out.backends = p.Backends
			if out.backends == nil {
				out.backends = p.Hosts
			}
		}
	}
	switch {
	case has > 0 && without+shut > 0:
		out.ready = Unknown
	case without > 0:
		out.lacks = fmt.Sprintf("agents of %s have no export %s of %s", asked, l.export, cluster)
	case shut > 0:
		out.lacks = fmt.Sprintf("as agents of %s have it, %s is not open to %s", asked, l.export, l.answer.From.Cluster)
	}
	return out
}

func exportIn(s *status.Status, id, cluster string) (*status.Export, *status.ExportCluster) {
	for i := range s.Exports {
		e := &s.Exports[i]
		if e.Namespace+"/"+e.Name != id {
			continue
		}
		for k := range e.Clusters {
			if e.Clusters[k].Name == cluster {
				return e, &e.Clusters[k]
			}
		}
	}
	return nil, nil
}
