// Package arrival says whether what a topology allows arrives now, as the agents report:
// over which links, to which backends, and what is missing. It is pure.
package arrival

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/explain"
	"hawser.dev/hawser/schema/fabric/reach"
)

// Verdicts of what agents report.
const (
	Arrives = "yes"
	Fails   = "no"
	Unknown = "unknown" // something that decides it could not be had
)

// States of a link.
const (
	Alive      = "alive"
	Connecting = "connecting"
	Down       = "down"
)

// Reports are what could be had of the clusters.
type Reports struct {
	Agents []status.Status
	// Silent says of a cluster why it was not reached.
	Silent map[string]string
	// Unresolved says of a cluster why its pods may not resolve names of the clusterset.
	Unresolved map[string]string
}

// Live is what the agents report about an answer.
type Live struct {
	Verdict string `json:"verdict"` // yes | no | unknown
	Trips   []Trip `json:"trips"`   // one for each that the topology allows
	// Missing is what is not as it should be, whether or not something arrives.
	Missing []string `json:"missing"`
	// Unknown is what could not be had.
	Unknown []string `json:"unknown"`
}

// Trip is the way to one cluster as it is now.
type Trip struct {
	Cluster  string   `json:"cluster"`
	Verdict  string   `json:"verdict"`
	Why      []string `json:"why,omitempty"`      // of no and unknown
	Hops     []Hop    `json:"hops,omitempty"`     // in order; none within a cluster
	Ready    string   `json:"ready,omitempty"`    // as the cluster's own agents say: yes | no | unknown; empty: nothing is behind that they know of
	Backends []string `json:"backends,omitempty"` // some of those that are ready
}

// Hop is the way from a cluster to the next one.
type Hop struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Links []Link `json:"links"`
}

// Link is the link between two gateways.
type Link struct {
	From   string `json:"from"` // cluster/gateway
	To     string `json:"to"`
	Driver string `json:"driver"`
	State  string `json:"state"` // alive | connecting | down | unknown
	InUse  bool   `json:"inUse"` // nodes of the first cluster send over it
	// Nodes are those that do, where not all do.
	Nodes []string `json:"nodes,omitempty"`
	RTT   int64    `json:"rttMicros,omitempty"` // average; 0 = not reported
	// Held names the nodes that hold ends now whose nodes labels pick, by cluster/gateway; one
	// of which no agent tells is missing.
	Held map[string]string `json:"held,omitempty"`
	// Reached says where the ends are reached and why there, by cluster/gateway, as the other
	// ends have it; one that no agent says is missing.
	Reached map[string]string `json:"reached,omitempty"`
}

// live is an answer with what is reported about it.
type live struct {
	Reports
	fabric *fabric.Fabric
	answer *explain.Answer
	export string // namespace/name; empty: an address that is none of an export
	agents map[string][]*status.Status
	// doubts say of a cluster why what it reports does not make a yes.
	doubts map[string][]string
	// fabrics are the clusters that have one in force, by its digest.
	fabrics map[string][]string
	out     *Live
}

// Look takes into account what agents report: an answer that is yes stays so only if what
// is asked for arrives as far as they know. It changes Yes and Why of the answer, and is
// nil where nothing was to be asked: the answer is no, or no link has a part in it.
func Look(f *fabric.Fabric, a *explain.Answer, r Reports) *Live {
	if !a.Yes || len(a.Trips) == 0 {
		return nil
	}
	l := &live{fabric: f, Reports: r, answer: a, export: a.To.Export, agents: map[string][]*status.Status{},
		doubts: map[string][]string{}, fabrics: map[string][]string{},
		out: &Live{Verdict: Fails, Trips: []Trip{}, Missing: []string{}, Unknown: []string{}}}
	for i := range r.Agents {
		s := &r.Agents[i]
		l.agents[s.Cluster] = append(l.agents[s.Cluster], s)
	}
	if a.To.Export == "" && a.To.Cluster == "" {
		for _, e := range reach.New(f).Named(a.To.Addr) {
			l.export = e.ID()
		}
	}
	for i := range a.Trips {
		if a.Trips[i].Yes {
			l.out.Trips = append(l.out.Trips, l.trip(&a.Trips[i]))
		}
	}
	l.clusters()
	var why []string
	for i := range l.out.Trips {
		t := &l.out.Trips[i]
		for _, name := range l.concerned(t) {
			for _, text := range l.doubts[name] {
				t.take(finding{Unknown, text})
			}
		}
		if t.Verdict == Arrives || t.Verdict == Unknown && l.out.Verdict == Fails {
			l.out.Verdict = t.Verdict
		}
	}
	for _, t := range l.out.Trips {
		for _, text := range t.Why {
			if t.Verdict == l.out.Verdict && !slices.Contains(why, text) {
				why = append(why, text)
			}
		}
	}
	switch l.out.Verdict {
	case Arrives:
		a.Why = l.arrives()
	case Unknown:
		a.Yes, a.Why = false, "allowed; not known to arrive: "+strings.Join(why, "; ")
	default:
		a.Yes, a.Why = false, "allowed, but nothing arrives: "+strings.Join(why, "; ")
	}
	return l.out
}

// concerned are the clusters on a trip.
func (l *live) concerned(t *Trip) []string {
	out := []string{l.answer.From.Cluster, t.Cluster}
	for _, h := range t.Hops {
		out = append(out, h.From, h.To)
	}
	return slices.Compact(sorted(out))
}

// arrives says where to, and over which links.
func (l *live) arrives() string {
	var in []string
	for _, t := range l.out.Trips {
		if t.Verdict != Arrives {
			continue
		}
		text := t.Cluster
		for _, h := range t.Hops {
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

func (l *live) missing(format string, args ...any) { add(&l.out.Missing, format, args...) }

func (l *live) unknown(format string, args ...any) { add(&l.out.Unknown, format, args...) }

func add(list *[]string, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}

// away says that nobody of a cluster answered.
func (l *live) away(cluster string) string {
	text := "no agent of " + cluster + " answered"
	if why := l.Silent[cluster]; why != "" {
		text += ": " + why
	}
	l.unknown("%s", text)
	return text
}

// finding is what one look at a trip gave. The worst of them is the trip's.
type finding struct{ verdict, why string }

var fine = finding{verdict: Arrives}

func (t *Trip) take(f finding) {
	rank := []string{Arrives, Unknown, Fails}
	if slices.Index(rank, f.verdict) > slices.Index(rank, t.Verdict) {
		t.Verdict, t.Why = f.verdict, nil
	}
	if f.verdict == t.Verdict && f.why != "" && !slices.Contains(t.Why, f.why) {
		t.Why = append(t.Why, f.why)
	}
}

// trip looks at the way to one cluster.
func (l *live) trip(planned *explain.Trip) Trip {
	t := Trip{Cluster: planned.Cluster, Verdict: Arrives}
	from := l.answer.From.Cluster
	if len(l.agents[from]) == 0 {
		t.take(finding{Unknown, l.away(from)})
	} else {
		t.take(l.resolved(from))
		t.take(l.inside(from))
		t.take(l.connected(from, t.Cluster))
	}
	if t.Cluster != from {
		l.hops(&t, from)
	}
	if l.export != "" {
		l.readiness(&t, from)
	} else if len(l.agents[t.Cluster]) == 0 {
		t.take(finding{Unknown, l.away(t.Cluster)})
	}
	return t
}

// resolved looks whether names are answered to pods of a cluster.
func (l *live) resolved(cluster string) finding {
	if l.answer.To.Export == "" {
		return fine // it is asked for by its address
	}
	if why := l.Unresolved[cluster]; why != "" {
		l.missing("%s: %s", cluster, why)
		return finding{Unknown, "pods of " + cluster + " may not resolve names of the clusterset"}
	}
	var mute []string // nodes
	for _, s := range l.agents[cluster] {
		if s.Mute {
			mute = append(mute, s.Node)
		}
	}
	if len(mute) == 0 {
		return fine
	}
	text := fmt.Sprintf("names of %s are not answered on %s of %s", l.fabric.Domain, strings.Join(sorted(mute), ", "), cluster)
	l.missing("%s", text)
	if len(mute) == len(l.agents[cluster]) {
		return finding{Fails, text}
	}
	return finding{Unknown, text}
}

// inside reports whether agents of a cluster see its pods in podCIDRs: packets of other pods
// are dropped.
func (l *live) inside(cluster string) finding {
	var outside []string // nodes
	for _, s := range l.agents[cluster] {
		for _, p := range s.Problems {
			if p.Code == status.PodsOutside {
				outside = append(outside, s.Node)
				l.missing("%s/%s: %s", cluster, s.Node, p.Text)
			}
		}
	}
	outside = slices.Compact(sorted(outside))
	if len(outside) == 0 {
		return fine
	}
	text := fmt.Sprintf("pods of %s on %s are outside of its podCIDRs, and their packets are dropped", cluster, strings.Join(outside, ", "))
	if len(outside) == len(l.agents[cluster]) {
		return finding{Fails, text}
	}
	return finding{Unknown, text}
}

// connected reports whether nodes of a cluster send requests to an export in another cluster:
// a network that the node is connected to may have the export's address.
func (l *live) connected(from, to string) finding {
	var nodes []string
	for _, s := range l.agents[from] {
		for _, p := range s.Problems {
			if p.Code == status.ConnectedExport && p.Path == "exports["+l.export+"].clusters["+to+"]" {
				nodes = append(nodes, s.Node)
				l.missing("%s/%s: %s of %s: %s", from, s.Node, l.export, to, p.Text)
			}
		}
	}
	nodes = slices.Compact(sorted(nodes))
	if len(nodes) == 0 {
		return fine
	}
	text := fmt.Sprintf("%s of %s has the address of a network that %s of %s is connected to", l.export, to, strings.Join(nodes, ", "), from)
	if len(nodes) == len(l.agents[from]) {
		return finding{Fails, text}
	}
	return finding{Unknown, text}
}

// hops follows what nodes use to reach a cluster.
func (l *live) hops(t *Trip, at string) {
	for been := []string{}; at != t.Cluster && !slices.Contains(been, at); {
		been = append(been, at)
		next := ""
		for _, s := range l.senders(at, len(been) > 1) {
			if p := pathTo(s, t.Cluster); p != nil && (next == "" || p.Rank != status.Ranks()[0]) {
				next = p.Cluster
				if len(p.Through) > 0 {
					next = p.Through[0]
				}
			}
		}
		if next == "" { // as the topology has it
			way := l.fabric.Graph().Paths(at, nil)[t.Cluster]
			if len(way) == 0 {
				t.take(finding{Fails, fmt.Sprintf("%s has no path to %s", at, t.Cluster)})
				return
			}
			next = way[0]
		}
		h := Hop{From: at, To: next, Links: l.links(at, next)}
		t.take(l.used(&h, t.Cluster, len(been) > 1))
		t.Hops = append(t.Hops, h)
		at = next
	}
}

// senders are the agents that decide how a cluster sends: all, or its gateways if it
// passes on what another cluster sends.
func (l *live) senders(cluster string, passes bool) []*status.Status {
	return slices.DeleteFunc(slices.Clone(l.agents[cluster]), func(s *status.Status) bool { return passes && s.Gateway == "" })
}

func pathTo(s *status.Status, cluster string) *status.Path {
	i := slices.IndexFunc(s.Paths, func(p status.Path) bool { return p.Cluster == cluster })
	if i < 0 {
		return nil
	}
	return &s.Paths[i]
}

// used notes which links carry what a cluster sends to another one, and says what comes
// of it.
func (l *live) used(h *Hop, target string, passes bool) finding {
	senders := l.senders(h.From, passes)
	if len(senders) == 0 {
		return finding{Unknown, l.away(h.From)}
	}
	var cut, unclear []string
	hope := func(k Link) bool { return k.State == Alive || k.State == Unknown }
	users := map[int][]string{}
	for _, s := range senders {
		p := pathTo(s, target)
		if p == nil || p.Rank == status.Ranks()[0] {
			cut = append(cut, s.Node)
			continue
		}
		i := slices.IndexFunc(h.Links, func(k Link) bool {
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
	case !slices.ContainsFunc(h.Links, hope):
		return finding{Fails, "no link between " + between + " is alive"}
	case len(cut) == len(senders):
		return finding{Fails, fmt.Sprintf("no node of %s has a way to %s that is alive", h.From, target)}
	case len(cut) > 0:
		return finding{Unknown, fmt.Sprintf("%s of %s has no path to %s that is alive", strings.Join(cut, ", "), h.From, target)}
	case len(unclear) > 0:
		return finding{Unknown, fmt.Sprintf("no gateway reports the link between %s that %s uses", between, strings.Join(unclear, ", "))}
	}
	return fine
}

// links gives the links between two clusters, as both ends report them.
func (l *live) links(from, to string) []Link {
	f := l.fabric
	type ends [2]string
	all := map[ends]*Link{}
	hold := func(k *Link, cluster, gateway string) { // which node is an end now, where labels pick it
		g := f.Cluster(cluster).Gateway(gateway)
		for _, s := range l.agents[cluster] {
			if g != nil && g.Picked() && s.Gateway == gateway {
				put(&k.Held, cluster+"/"+gateway, s.Node)
			}
		}
	}
	at := func(a, b string) *Link {
		if all[ends{a, b}] == nil {
			k := &Link{From: from + "/" + a, To: to + "/" + b, Driver: f.Link(from, to).Driver, State: Unknown}
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
	note := func(k *Link, c *status.Connection) {
		if c.EndpointWhy != "" {
			put(&k.Reached, c.RemoteCluster+"/"+c.RemoteGateway, c.EndpointWhy)
		}
		state := map[string]string{status.Connected: Alive, status.Disconnected: Down, status.Connecting: Connecting}[c.Status]
		// Probes go round: an end that has no answer knows better than one that had one.
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
	for _, s := range l.agents[from] {
		for i := range s.Connections {
			if c := &s.Connections[i]; c.RemoteCluster == to {
				note(at(c.Gateway, c.RemoteGateway), c)
			}
		}
	}
	for _, s := range l.agents[to] {
		for i := range s.Connections {
			if c := &s.Connections[i]; c.RemoteCluster == from {
				note(at(c.RemoteGateway, c.Gateway), c)
			}
		}
	}
	out := make([]Link, 0, len(all))
	for _, k := range all {
		if k.State != Alive {
			k.RTT = 0
		}
		out = append(out, *k)
	}
	slices.SortFunc(out, func(a, b Link) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return out
}

// put adds to a map, which may be nil.
func put(to *map[string]string, key, value string) {
	if *to == nil {
		*to = map[string]string{}
	}
	(*to)[key] = value
}

// readiness looks for what is behind the export in the trip's cluster, as its own agents
// say, and as those of the client's cluster have heard.
func (l *live) readiness(t *Trip, from string) {
	own, heard := l.part(t.Cluster, t.Cluster), l.part(from, t.Cluster)
	t.Ready = cmp.Or(own.ready, Unknown)
	t.Backends = own.backends
	if lacks := cmp.Or(own.lacks, heard.lacks); lacks != "" {
		t.take(finding{Fails, lacks})
		return
	}
	if own.ready == "no" {
		text := fmt.Sprintf("no backend of %s is ready in %s", l.export, t.Cluster)
		if why := l.problems(t.Cluster); len(why) > 0 {
			text += ": " + strings.Join(why, "; ")
		}
		l.missing("%s", text)
		t.take(finding{Fails, text})
		return
	}
	switch {
	case len(l.agents[t.Cluster]) == 0:
		text := l.away(t.Cluster)
		if heard.ready != "" && heard.ready != Unknown {
			text += fmt.Sprintf("; %s heard last that ready backends of %s there: %s", from, l.export, heard.ready)
		}
		t.take(finding{Unknown, text})
	case own.ready != "yes":
		t.take(finding{Unknown, fmt.Sprintf("agents of %s do not agree that a backend of %s is ready", t.Cluster, l.export)})
	}
	switch {
	case t.Cluster == from || heard.ready == "yes" || len(l.agents[from]) == 0:
	case heard.ready == "no":
		t.take(finding{Fails, fmt.Sprintf("%s has not heard of a ready backend of %s in %s", from, l.export, t.Cluster)})
	default:
		t.take(finding{Unknown, fmt.Sprintf("not all nodes of %s have heard from %s which backends are ready", from, t.Cluster)})
	}
}

// problems returns what agents of a cluster report about its part of the export.
func (l *live) problems(cluster string) []string {
	var out []string
	for _, s := range l.agents[cluster] {
		for _, p := range s.Problems {
			if p.Path == "exports["+l.export+"].clusters["+cluster+"]" && !slices.Contains(out, p.Text) {
				out = append(out, p.Text)
			}
		}
	}
	return out
}

// part is what agents of one cluster say of a cluster's part of the export.
type part struct {
	ready    string // yes | no | unknown; empty: nobody says anything
	backends []string
	lacks    string // why the export does not count there at all
}

// part asks the agents of a cluster about another one's part, or its own.
func (l *live) part(asked, cluster string) part {
	var out part
	without, shut, has := 0, 0, 0
	for _, s := range l.agents[asked] {
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
		out.lacks = fmt.Sprintf("agents of %s know no %s of %s", asked, l.export, cluster)
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
