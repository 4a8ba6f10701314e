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
		if e := q.exportByAddr(a.To); e != nil {
			l.export = e.ID()
		}
	}
	for i := range a.Destinations {
		if t := &a.Destinations[i]; t.Allowed {
			t.Live = l.checkDestination(t)
		}
	}
	l.checkClusters()
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
	reasons := strings.Join(a.LiveReasons(), "; ")
	switch l.out.Verdict {
	case Delivered:
		l.out.Reason = l.deliveredText()
	case Unknown:
		l.out.Reason = "allowed; delivery unknown: " + reasons
	default:
		l.out.Reason = "allowed, but nothing arrives: " + reasons
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
		for _, reason := range l.Reasons {
			if !slices.Contains(out, reason) {
				out = append(out, reason)
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

// deliveredText returns a sentence with the clusters in which traffic arrives, and the links.
func (l *liveCheck) deliveredText() string {
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
	destination := l.answer.To.Addr.String()
	if l.answer.To.Export != "" {
		destination = l.answer.To.Export
	}
	if l.answer.To.Port != "" {
		destination += ":" + l.answer.To.Port
	}
	return fmt.Sprintf("%s: %s is reached now in %s", l.answer.From, destination, strings.Join(in, ", "))
}

func (l *liveCheck) addMissing(format string, args ...any) {
	appendUnique(&l.out.Missing, format, args...)
}

func (l *liveCheck) addUnknown(format string, args ...any) {
	appendUnique(&l.out.Unknown, format, args...)
}

func appendUnique(list *[]string, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}

// noAgentsReason returns that no agent of a cluster answered, and the reason. It adds the text to
// Unknown.
func (l *liveCheck) noAgentsReason(cluster string) string {
	text := "no agent of " + cluster + " answered"
	if reason := l.Unreachable[cluster]; reason != "" {
		text += ": " + reason
	}
	l.addUnknown("%s", text)
	return text
}

// finding is the result of one check of a destination. The worst finding of a destination counts.
type finding struct{ verdict, reason string }

var noFinding = finding{verdict: Delivered}

func (t *LiveDestination) add(f finding) {
	rank := []string{Delivered, Unknown, NotDelivered}
	if slices.Index(rank, f.verdict) > slices.Index(rank, t.Verdict) {
		t.Verdict, t.Reasons = f.verdict, nil
	}
	if f.verdict == t.Verdict && f.reason != "" && !slices.Contains(t.Reasons, f.reason) {
		t.Reasons = append(t.Reasons, f.reason)
	}
}

// checkDestination returns what agents report about the path to one cluster.
func (l *liveCheck) checkDestination(d *Destination) *LiveDestination {
	t := &LiveDestination{Verdict: Delivered, Policies: slices.Concat(l.SourcePolicies, l.DestinationPolicies[d.Cluster])}
	cluster := d.Cluster
	from := l.answer.From.Cluster
	if len(l.byCluster[from]) == 0 {
		t.add(finding{Unknown, l.noAgentsReason(from)})
	} else {
		t.add(l.checkDNS(from))
		t.add(l.checkPodCIDRs(from))
		t.add(l.checkConnectedNetworks(from, cluster))
	}
	if cluster != from {
		l.addHops(t, from, cluster)
	}
	if l.export != "" {
		l.addReadiness(t, from, cluster)
	} else if len(l.byCluster[cluster]) == 0 {
		t.add(finding{Unknown, l.noAgentsReason(cluster)})
	}
	return t
}

// checkDNS checks that agents answer DNS queries of pods of a cluster.
func (l *liveCheck) checkDNS(cluster string) finding {
	if l.answer.To.Export == "" {
		return noFinding // an address needs no DNS
	}
	if reason := l.Unresolved[cluster]; reason != "" {
		l.addMissing("%s: %s", cluster, reason)
		return finding{Unknown, "pods of " + cluster + " may not resolve names of the clusterset"}
	}
	var unanswered []string // nodes
	for _, s := range l.byCluster[cluster] {
		if s.DNSUnavailable {
			unanswered = append(unanswered, s.Node)
		}
	}
	if len(unanswered) == 0 {
		return noFinding
	}
	text := fmt.Sprintf("names of %s are not answered on %s of %s", l.fabric.Domain, strings.Join(sorted(unanswered), ", "), cluster)
	l.addMissing("%s", text)
	if len(unanswered) == len(l.byCluster[cluster]) {
		return finding{NotDelivered, text}
	}
	return finding{Unknown, text}
}

// checkPodCIDRs checks that agents of a cluster see its pods in podCIDRs. Packets of other pods are
// dropped.
func (l *liveCheck) checkPodCIDRs(cluster string) finding {
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

// checkConnectedNetworks checks that nodes of a cluster send requests for an export to the other
// cluster. They do not if a network that the node is connected to has the export's address.
func (l *liveCheck) checkConnectedNetworks(from, to string) finding {
	var nodes []string
	for _, s := range l.byCluster[from] {
		for _, p := range s.Problems {
			if p.Code == status.ConnectedExport && p.Path == "exports["+l.export+"].clusters["+to+"]" {
				nodes = append(nodes, s.Node)
				l.addMissing("%s/%s: %s of %s: %s", from, s.Node, l.export, to, p.Text)
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

// addHops adds the links that nodes use to reach a cluster.
func (l *liveCheck) addHops(t *LiveDestination, current, cluster string) {
	for visited := []string{}; current != cluster && !slices.Contains(visited, current); {
		visited = append(visited, current)
		next := ""
		for _, s := range l.senders(current, len(visited) > 1) {
			if p := pathTo(s, cluster); p != nil && (next == "" || p.Rank != status.Ranks()[0]) {
				next = p.Cluster
				if len(p.Transit) > 0 {
					next = p.Transit[0]
				}
			}
		}
		if next == "" { // use the topology's path
			path := l.fabric.Graph().Paths(current, nil)[cluster]
			if len(path) == 0 {
				t.add(finding{NotDelivered, fmt.Sprintf("%s has no path to %s", current, cluster)})
				return
			}
			next = path[0]
		}
		h := Hop{From: current, To: next, Links: l.links(current, next)}
		t.add(l.markUsedLinks(&h, cluster, len(visited) > 1))
		t.Hops = append(t.Hops, h)
		current = next
	}
}

// senders returns the agents whose path counts: all agents of a cluster, or only its gateways if it
// forwards transit traffic.
func (l *liveCheck) senders(cluster string, transit bool) []*status.Status {
	return slices.DeleteFunc(slices.Clone(l.byCluster[cluster]), func(s *status.Status) bool { return transit && s.Gateway == "" })
}

func pathTo(s *status.Status, cluster string) *status.Path {
	i := slices.IndexFunc(s.Paths, func(p status.Path) bool { return p.Cluster == cluster })
	if i < 0 {
		return nil
	}
	return &s.Paths[i]
}

// markUsedLinks marks the links of h that traffic from its cluster to target uses, and returns
// whether that traffic arrives.
func (l *liveCheck) markUsedLinks(h *Hop, target string, transit bool) finding {
	senders := l.senders(h.From, transit)
	if len(senders) == 0 {
		return finding{Unknown, l.noAgentsReason(h.From)}
	}
	var noPath, unclear []string
	nodesByLink := map[int][]string{}
	for _, s := range senders {
		p := pathTo(s, target)
		if p == nil || p.Rank == status.Ranks()[0] {
			noPath = append(noPath, s.Node)
			continue
		}
		i := slices.IndexFunc(h.Links, func(k LiveLink) bool {
			return k.From == h.From+"/"+p.LocalGateway && k.To == h.To+"/"+p.RemoteGateway
		})
		switch {
		case i < 0 || h.Links[i].State == Unknown:
			unclear = append(unclear, s.Node)
		case h.Links[i].State != Alive:
			noPath = append(noPath, s.Node)
		}
		if i >= 0 {
			nodesByLink[i] = append(nodesByLink[i], s.Node)
		}
	}
	for i, list := range nodesByLink {
		h.Links[i].InUse = true
		if len(list) < len(senders) {
			slices.Sort(list)
			h.Links[i].Nodes = list
		}
	}
	switch pair := h.From + " and " + h.To; {
	case !h.Alive():
		return finding{NotDelivered, "no link between " + pair + " is alive"}
	case len(noPath) == len(senders):
		return finding{NotDelivered, fmt.Sprintf("no node of %s has a way to %s that is alive", h.From, target)}
	case len(noPath) > 0:
		return finding{Unknown, fmt.Sprintf("%s of %s has no path to %s that is alive", strings.Join(noPath, ", "), h.From, target)}
	case len(unclear) > 0:
		return finding{Unknown, fmt.Sprintf("no gateway reports the link between %s that %s uses", pair, strings.Join(unclear, ", "))}
	}
	return noFinding
}

// links returns the links between two clusters, as both ends report them.
func (l *liveCheck) links(from, to string) []LiveLink {
	f := l.fabric
	type gatewayPair [2]string
	byGateways := map[gatewayPair]*LiveLink{}
	addActiveNode := func(k *LiveLink, cluster, gateway string) { // adds the current node of a gateway with a node selector
		g := f.Cluster(cluster).Gateway(gateway)
		for _, s := range l.byCluster[cluster] {
			if g != nil && g.HasNodeSelector() && s.Gateway == gateway {
				setKey(&k.ActiveNodes, cluster+"/"+gateway, s.Node)
			}
		}
	}
	linkBetween := func(a, b string) *LiveLink {
		if byGateways[gatewayPair{a, b}] == nil {
			k := &LiveLink{From: from + "/" + a, To: to + "/" + b, Driver: f.Link(from, to).Driver, State: Unknown}
			addActiveNode(k, from, a)
			addActiveNode(k, to, b)
			byGateways[gatewayPair{a, b}] = k
		}
		return byGateways[gatewayPair{a, b}]
	}
	if local, remote := f.Cluster(from), f.Cluster(to); local != nil && remote != nil {
		for _, a := range local.Gateways {
			for _, b := range remote.Gateways {
				linkBetween(a.Name, b.Name)
			}
		}
	}
	addConnection := func(k *LiveLink, c *status.Connection) {
		if c.EndpointReason != "" {
			setKey(&k.EndpointResults, c.RemoteCluster+"/"+c.RemoteGateway, c.EndpointReason)
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
				addConnection(linkBetween(c.Gateway, c.RemoteGateway), c)
			}
		}
	}
	for _, s := range l.byCluster[to] {
		for i := range s.Connections {
			if c := &s.Connections[i]; c.RemoteCluster == from {
				addConnection(linkBetween(c.RemoteGateway, c.Gateway), c)
			}
		}
	}
	out := make([]LiveLink, 0, len(byGateways))
	for _, k := range byGateways {
		if k.State != Alive {
			k.RTT = 0
		}
		out = append(out, *k)
	}
	slices.SortFunc(out, func(a, b LiveLink) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return out
}

// setKey sets a key of a map, which may be nil.
func setKey(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}

// addReadiness adds the ready backends of the export in a cluster, as its own agents report them.
// It checks that the agents of the client's cluster know about them.
func (l *liveCheck) addReadiness(t *LiveDestination, from, cluster string) {
	exported, imported := l.reportedPart(cluster, cluster), l.reportedPart(from, cluster)
	t.Ready = cmp.Or(exported.ready, Unknown)
	t.Backends = exported.backends
	if unusable := cmp.Or(exported.unusable, imported.unusable); unusable != "" {
		t.add(finding{NotDelivered, unusable})
		return
	}
	if exported.ready == "no" {
		text := fmt.Sprintf("no backend of %s is ready in %s", l.export, cluster)
		if problems := l.exportProblems(cluster); len(problems) > 0 {
			text += ": " + strings.Join(problems, "; ")
		}
		l.addMissing("%s", text)
		t.add(finding{NotDelivered, text})
		return
	}
	switch {
	case len(l.byCluster[cluster]) == 0:
		text := l.noAgentsReason(cluster)
		if imported.ready != "" && imported.ready != Unknown {
			text += fmt.Sprintf("; %s heard last that ready backends of %s there: %s", from, l.export, imported.ready)
		}
		t.add(finding{Unknown, text})
	case exported.ready != "yes":
		t.add(finding{Unknown, fmt.Sprintf("agents of %s do not agree that a backend of %s is ready", cluster, l.export)})
	}
	switch {
	case cluster == from || imported.ready == "yes" || len(l.byCluster[from]) == 0:
	case imported.ready == "no":
		t.add(finding{NotDelivered, fmt.Sprintf("%s has not heard of a ready backend of %s in %s", from, l.export, cluster)})
	default:
		t.add(finding{Unknown, fmt.Sprintf("not all nodes of %s have heard from %s which backends are ready", from, cluster)})
	}
}

// exportProblems returns the causes that agents of a cluster report for its part of the export.
func (l *liveCheck) exportProblems(cluster string) []string {
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

// exportPart is a cluster's part of the export as the agents of one cluster report it.
type exportPart struct {
	ready    string // yes | no | unknown; empty without a report
	backends []string
	unusable string // why the agents ignore the export
}

// reportedPart returns cluster's part of the export as the agents of reporter report it.
func (l *liveCheck) reportedPart(reporter, cluster string) exportPart {
	var out exportPart
	without, denied, present := 0, 0, 0
	for _, s := range l.byCluster[reporter] {
		if s.Digest == "" {
			continue
		}
		e, p := exportIn(s, l.export, cluster)
		if p == nil {
			without++
			continue
		}
		if from := l.answer.From.Cluster; len(e.Allow) > 0 && cluster != from && !slices.Contains(e.Allow, from) {
			denied++
			continue
		}
		if present++; out.ready == "" || out.ready == p.Ready {
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
	case present > 0 && without+denied > 0:
		out.ready = Unknown
	case without > 0:
		out.unusable = fmt.Sprintf("agents of %s have no export %s of %s", reporter,
			l.export, cluster)
	case denied > 0:
		out.unusable = fmt.Sprintf("as agents of %s have it, %s is not open to %s", reporter, l.export, l.answer.From.Cluster)
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
