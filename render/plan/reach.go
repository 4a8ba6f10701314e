package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/reach"
)

// Reach is which clusters' pods can newly reach what, and what they no longer can. It
// says what the clusterset lets through, not whether something answers.
type Reach struct {
	Gained []Access `json:"gained"`
	Lost   []Access `json:"lost"`
}

// Access is some clusters, and all that they reach by the same line of the topology.
type Access struct {
	// From names the clusters, sorted. It is empty when AllBut says who.
	From []string `json:"from,omitempty"`
	// All says that it is all clusters but those of AllBut.
	All    bool     `json:"all,omitempty"`
	AllBut []string `json:"all_but,omitempty"`
	To     []Target `json:"to"`
	// Path and Source are those of Entry.
	Path   string `json:"path"`
	Source string `json:"source,omitempty"`
	// Gone says that the path left the topology.
	Gone bool `json:"gone,omitempty"`
	// May says, of what is no longer reachable, what Effect.May does: there are no new
	// connections, and open ones go on for now.
	May bool `json:"may,omitempty"`
}

// Target is what is reached: an export, what clusters export by themselves from some
// namespaces, or a prefix of pods or services at its own addresses.
type Target struct {
	Export     string `json:"export,omitempty"`     // namespace/name
	Namespaces string `json:"namespaces,omitempty"` // a pattern of dynamicExports
	// Besides are patterns within Namespaces whose exports are reached as before.
	Besides []string `json:"besides,omitempty"`
	Prefix  string   `json:"prefix,omitempty"`
	Ports   []string `json:"ports,omitempty"` // such as 80/TCP; none = all
	// In names the clusters that have it, sorted. A cluster needs no access to itself.
	In []string `json:"in"`
}

// reachOf compares what clusters reach. It looks at what changed, and at all that a
// cluster that changed reaches or has.
func reachOf(want, have *fabric.Fabric) Reach {
	r := &reacher{want: reach.New(want), have: reach.New(have), found: map[string]*foundAccess{}}
	r.crowds = crowdsOf(r.want, r.have)
	for _, c := range r.crowds.list {
		r.changed = r.changed || c.changed
	}
	r.exports()
	var patterns []string
	for _, d := range []*fabric.DynamicExports{want.DynamicExports, have.DynamicExports} {
		if d != nil {
			patterns = append(patterns, d.Namespaces...)
		}
	}
	slices.Sort(patterns)
	for _, pattern := range slices.Compact(patterns) {
		r.pattern(pattern)
	}
	r.prefixes()
	out := Reach{Gained: []Access{}, Lost: []Access{}}
	for _, a := range r.order {
		if a.gained {
			out.Gained = append(out.Gained, a.Access)
		} else {
			out.Lost = append(out.Lost, a.Access)
		}
	}
	return out
}

type reacher struct {
	want, have *reach.Model
	crowds     *crowds
	changed    bool // some crowd
	found      map[string]*foundAccess
	order      []*foundAccess
}

type foundAccess struct {
	Access
	gained bool
}

// asked is one thing in one cluster, or in several that are alike, on both sides.
type asked struct {
	target  Target
	cluster string   // of Target.In
	names   []string // clusters that some list names, sorted
	is, was func(from string) bool
	cause   func(from string, gained bool) (path string, gone bool)
	same    bool // only clusters that changed can differ
}

// piece is an answer: who reaches a target newly, or no longer, by one cause.
type piece struct {
	who    who
	path   string
	gone   bool
	gained bool
	target Target
}

// ask compares who reaches one thing.
func (r *reacher) ask(q asked) []*piece {
	special := make(map[string]bool, len(q.names))
	for _, n := range q.names {
		special[n] = true
	}
	var answers []*piece
	answer := func(from string, alike int) *piece {
		is, was := q.is(from), q.was(from)
		if is == was {
			return nil
		}
		path, gone := q.cause(from, is)
		if alike > 1 && path == clusterPath(from) {
			path, gone = "clusters", false // each of them has its own line
		}
		i := slices.IndexFunc(answers, func(p *piece) bool { return p.path == path && p.gained == is })
		if i < 0 {
			i = len(answers)
			answers = append(answers, &piece{path: path, gone: gone, gained: is, target: q.target})
		}
		return answers[i]
	}
	asked := 0 // crowds that have somebody to ask
	for _, c := range r.crowds.list {
		rep := c.rep(special, q.cluster)
		if rep == "" {
			continue
		}
		asked++
		if q.same && !c.changed {
			continue
		}
		if p := answer(rep, len(c.members)); p != nil {
			p.who.crowds = append(p.who.crowds, c.index)
		}
	}
	named := map[string]*piece{}
	for _, n := range q.names {
		if c := r.crowds.of[n]; n != q.cluster && c != nil && (!q.same || c.changed) {
			if named[n] = answer(n, 1); named[n] != nil {
				named[n].who.names = append(named[n].who.names, n)
			}
		}
	}
	for _, p := range answers {
		r.settle(p, q, named)
	}
	return answers
}

// settle says whom of a piece's crowds it is not about, and whether it is about all.
func (r *reacher) settle(p *piece, q asked, named map[string]*piece) {
	w := &p.who
	if len(w.crowds) == 0 {
		return
	}
	w.all = true
	for _, c := range r.crowds.list {
		if c.exists(p.gained) && !slices.Contains(w.crowds, c.index) && slices.ContainsFunc(c.members,
			func(m string) bool { return m != q.cluster && named[m] != p }) {
			w.all = false
			break
		}
	}
	for _, n := range q.names {
		if c := r.crowds.of[n]; c != nil && c.exists(p.gained) && n != q.cluster && named[n] != p && (w.all ||
			slices.Contains(w.crowds, c.index)) {
			w.out = append(w.out, n)
		}
	}
	if w.all {
		w.crowds, w.names = nil, nil
		return
	}
	if i, found := slices.BinarySearch(w.out, q.cluster); !found && len(q.target.In) == 1 &&
		slices.Contains(w.crowds, r.crowds.of[q.cluster].index) {
		w.out = slices.Insert(w.out, i, q.cluster)
	}
}

// joined puts together the pieces that are alike in what they differ by.
func joined(list []*piece, alike func(*piece) []string, join func(into, p *piece)) []*piece {
	of := map[string]*piece{}
	var out []*piece
	for _, p := range list {
		key := fmt.Sprint(p.gained, p.path, alike(p), p.target.Prefix) + p.who.key()
		if have := of[key]; have != nil {
			join(have, p)
			continue
		}
		of[key], out = p, append(out, p)
	}
	return out
}

// put brings the answers about one export, pattern or cluster's prefixes into the result;
// those that differ in the clusters only are one, and then those that differ in the port only.
func (r *reacher) put(list []*piece) {
	list = joined(list, func(p *piece) []string { return p.target.Ports },
		func(into, p *piece) { into.target.In = append(into.target.In, p.target.In...) })
	for _, p := range list {
		slices.Sort(p.target.In)
	}
	list = joined(list, func(p *piece) []string { return p.target.In },
		func(into, p *piece) { into.target.Ports = append(into.target.Ports, p.target.Ports...) })
	for _, p := range list {
		key := fmt.Sprint(p.gained, p.path) + p.who.key()
		a := r.found[key]
		if a == nil {
			a = &foundAccess{gained: p.gained, Access: Access{Path: p.path, Gone: p.gone, All: p.who.all,
				AllBut: p.who.out}}
			if !a.All {
				a.From, a.AllBut = r.crowds.told(&p.who), nil
			}
			r.found[key] = a
			r.order = append(r.order, a)
		}
		a.To = append(a.To, p.target)
	}
}

// exports compares the exports of the topology.
func (r *reacher) exports() {
	w, h := r.want.Fabric().Exports, r.have.Fabric().Exports
	for len(w) > 0 || len(h) > 0 {
		order := len(h) - len(w) // where one side is at its end
		if len(w) > 0 && len(h) > 0 {
			order = cmp.Or(cmp.Compare(w[0].Namespace, h[0].Namespace), cmp.Compare(w[0].Name, h[0].Name))
		}
		var is, was *fabric.Export
		if order <= 0 {
			is, w = &w[0], w[1:]
		}
		if order >= 0 {
			was, h = &h[0], h[1:]
		}
		r.export(is, was)
	}
}

func (r *reacher) export(is, was *fabric.Export) {
	same := is != nil && was != nil && sameReach(is, was)
	if same && !r.changed {
		return
	}
	var names, clusters []string
	var ports []fabric.Port
	for _, e := range []*fabric.Export{is, was} {
		if e == nil {
			continue
		}
		names = append(names, e.Allow...)
		for i := range e.Clusters {
			clusters = append(clusters, e.Clusters[i].Name)
		}
		for _, p := range e.Ports {
			if !slices.ContainsFunc(ports, func(o fabric.Port) bool { return reach.PortID(o) == reach.PortID(p) }) {
				ports = append(ports, p)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	slices.Sort(clusters)
	var answers []*piece
	for _, cluster := range slices.Compact(clusters) {
		w, h := offered(r.want, is, cluster), offered(r.have, was, cluster)
		for _, port := range ports {
			answers = append(answers, r.ask(asked{
				cluster: cluster, names: names, same: same && !r.crowds.of[cluster].changed,
				target: Target{Export: cmp.Or(is, was).ID(), Ports: []string{portText(port)}, In: []string{cluster}},
				is:     func(from string) bool { return has(is, port) && w.ReachableFrom(from, port) },
				was:    func(from string) bool { return has(was, port) && h.ReachableFrom(from, port) },
				cause: func(from string, gained bool) (string, bool) {
					if gained {
						return exportCause(r.have, was, is, from, cluster, port), false
					}
					gone := is == nil || is.Part(cluster) == nil || missingCluster(r.want, cluster, from) != ""
					return exportCause(r.want, is, was, from, cluster, port), gone
				},
			})...)
		}
	}
	r.put(answers)
}

func offered(s *reach.Model, e *fabric.Export, cluster string) *reach.Target {
	if e == nil {
		return nil
	}
	return s.Export(e, cluster)
}

func has(e *fabric.Export, port fabric.Port) bool {
	return e != nil && slices.ContainsFunc(e.Ports,
		func(p fabric.Port) bool { return reach.PortID(p) == reach.PortID(port) })
}

func portText(p fabric.Port) string {
	protocol, number, _ := strings.Cut(reach.PortID(p), "/")
	return number + "/" + protocol
}

// sameReach reports whether an export is the same to who reaches it.
func sameReach(a, b *fabric.Export) bool {
	return a.Type == b.Type && (a.Allow == nil) == (b.Allow == nil) && slices.Equal(a.Allow, b.Allow) &&
		slices.EqualFunc(a.Ports, b.Ports, func(x, y fabric.Port) bool { return reach.PortID(x) == reach.PortID(y) }) &&
		slices.EqualFunc(a.Clusters, b.Clusters, func(x, y fabric.ExportCluster) bool {
			return x.Name == y.Name && (len(x.IPs) > 0) == (len(y.IPs) > 0) && (len(x.Hosts) > 0) == (len(y.Hosts) > 0)
		})
}

// exportCause says what the side that lacks an access lacks.
func exportCause(lacks *reach.Model, e, there *fabric.Export, from, cluster string, port fabric.Port) string {
	path := "exports[" + there.ID() + "]"
	switch {
	case e == nil:
		return path
	case e.Part(cluster) == nil:
		return path + ".clusters[" + cluster + "]"
	}
	if missing := missingCluster(lacks, cluster, from); missing != "" {
		return missing
	}
	switch {
	case !has(e, port):
		return path + ".ports"
	case !e.Allows(from):
		return path + ".allow"
	case !lacks.Connected(from, cluster):
		return "connectivity"
	case e.Type != there.Type:
		return path + ".type"
	}
	return clusterPath(cluster)
}

func clusterPath(name string) string { return "clusters[" + name + "]" }

// missingCluster gives the path of a cluster that a side has not; empty when it has both.
func missingCluster(lacks *reach.Model, clusters ...string) string {
	for _, name := range clusters {
		if lacks.Cluster(name) == nil {
			return clusterPath(name)
		}
	}
	return ""
}

// pattern compares who reaches what clusters export by themselves from the namespaces of a
// pattern.
func (r *reacher) pattern(pattern string) {
	w, h := r.want.Fabric().DynamicExports, r.have.Fabric().DynamicExports
	isAny, isOnly := mayExport(w, pattern)
	wasAny, wasOnly := mayExport(h, pattern)
	special := slices.Compact(slices.Sorted(slices.Values(slices.Concat(isOnly, wasOnly))))
	var answers []*piece
	ask := func(clusters []string) {
		cluster := clusters[0]
		is, was := isAny || slices.Contains(isOnly, cluster), wasAny || slices.Contains(wasOnly, cluster)
		target := Target{Namespaces: pattern, In: clusters}
		switch {
		case was && !is:
			target.Besides = within(w, pattern)
		case is && !was:
			target.Besides = within(h, pattern)
		}
		ow, oh := r.want.Dynamic(cluster), r.have.Dynamic(cluster)
		answers = append(answers, r.ask(asked{
			cluster: cluster, target: target, same: is == was && !r.crowds.of[cluster].changed,
			is:  func(from string) bool { return is && ow.ReachableFrom(from, fabric.Port{}) },
			was: func(from string) bool { return was && oh.ReachableFrom(from, fabric.Port{}) },
			cause: func(from string, gained bool) (string, bool) {
				lacks, may := r.want, is
				if gained {
					lacks, may = r.have, was
				}
				missing := missingCluster(lacks, cluster, from)
				switch {
				case may && missing != "":
					return missing, !gained
				case may && !lacks.Connected(from, cluster):
					return "connectivity", false
				}
				return "dynamicExports", !gained && w == nil
			},
		})...)
	}
	for _, c := range r.crowds.list {
		if rest := slices.DeleteFunc(slices.Clone(c.members), func(n string) bool {
			return slices.Contains(special, n)
		}); len(rest) > 0 {
			ask(rest)
		}
	}
	for _, n := range special {
		if r.crowds.of[n] != nil {
			ask([]string{n})
		}
	}
	r.put(answers)
}

// mayExport says which clusters may export from the namespaces of a pattern: any, or some.
func mayExport(d *fabric.DynamicExports, pattern string) (all bool, only []string) {
	if !d.Matches(pattern) {
		return false, nil
	}
	only, restricted := d.Restricted(pattern)
	return !restricted, only
}

// within gives the patterns that match less than another one.
func within(d *fabric.DynamicExports, pattern string) []string {
	if d == nil {
		return nil
	}
	wide := &fabric.DynamicExports{Namespaces: []string{pattern}}
	return slices.DeleteFunc(slices.Clone(d.Namespaces), func(p string) bool { return p == pattern || !wide.Matches(p) })
}

// prefixes compares what clusters have that is reached at its own addresses.
func (r *reacher) prefixes() {
	for _, c := range r.crowds.list {
		for _, name := range c.members {
			w, h := shown(r.want.Cluster(name)), shown(r.have.Cluster(name))
			same := slices.Equal(w, h) && !c.changed
			if same && !r.changed {
				continue
			}
			all := slices.Concat(w, h)
			slices.SortFunc(all, netip.Prefix.Compare)
			var answers []*piece
			for _, p := range slices.Compact(all) {
				ow, oh := r.want.Prefix(name, p), r.have.Prefix(name, p)
				answers = append(answers, r.ask(asked{
					cluster: name, same: same, target: Target{Prefix: p.String(), In: []string{name}},
					is:  func(from string) bool { return ow.ReachableFrom(from, fabric.Port{}) },
					was: func(from string) bool { return oh.ReachableFrom(from, fabric.Port{}) },
					cause: func(from string, gained bool) (string, bool) {
						if gained {
							return prefixCause(r.have, from, name, p), false
						}
						return prefixCause(r.want, from, name, p), missingCluster(r.want, name, from) != ""
					},
				})...)
			}
			r.put(answers)
		}
	}
}

// shown gives the prefixes of a cluster that hide behind nothing.
func shown(c *fabric.Cluster) []netip.Prefix {
	if c == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Concat(c.PodCIDRs, c.ServiceCIDRs),
		func(p netip.Prefix) bool { return c.Hides(fabric.Family(p.Addr())) })
}

func prefixCause(lacks *reach.Model, from, cluster string, p netip.Prefix) string {
	if missing := missingCluster(lacks, cluster, from); missing != "" {
		return missing
	}
	switch {
	case !lacks.Connected(from, cluster):
		return "connectivity"
	case lacks.Prefix(cluster, p) != nil:
		return clusterPath(cluster) + ".globalnet"
	}
	return clusterPath(cluster)
}
