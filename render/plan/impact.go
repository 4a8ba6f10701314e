package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema/fabric"
)

// Impact is the effect of the published change on open connections and on the load of gateways.
// Tests measure the effect of each kind of change (e2e/testdata/impact.txtar, e2e/testdata/quiet).
type Impact struct {
	Breaks    []Effect `json:"breaks"`
	Pauses    []Effect `json:"pauses"`    // they pause and continue
	Continues []Effect `json:"continues"` // although their path changes
	Loads     []Load   `json:"loads"`
}

// Effect is the effect on some connections.
type Effect struct {
	What string `json:"what"`
	// AtMostMS is the maximum duration of a pause in milliseconds. In Pauses, 0 means until
	// both ends have the new fabric.
	AtMostMS int    `json:"at_most_ms,omitempty"`
	Path     string `json:"path,omitempty"`
	Source   string `json:"source,omitempty"`
	// Gone means that the topology no longer contains the path.
	Gone bool `json:"gone,omitempty"`
	// Uncertain means, in Breaks, that the connections do not break at once, because gateways
	// keep the flows that they translate. They break if other gateways forward them. For pods
	// on nodes that no longer reach a gateway, they break at once.
	Uncertain bool `json:"uncertain,omitempty"`
}

// Load is the load of a cluster's gateways, if it grows much.
type Load struct {
	Cluster  string   `json:"cluster"`
	Gateways []string `json:"gateways"` // gateways that forward the traffic
	// TransitPairs is the number of pairs of other clusters whose traffic the gateways forward.
	TransitPairs       int `json:"transit_pairs"`
	TransitPairsBefore int `json:"transit_pairs_before"`
	// Pairs is the number of clusters that the cluster itself reaches.
	Pairs          int `json:"pairs"`
	GatewaysBefore int `json:"gateways_before"`
}

// computeImpact returns the impact of the plan's entries on connections.
func (p *Plan) computeImpact(want, have *fabric.Fabric) Impact {
	out := Impact{Breaks: []Effect{}, Pauses: []Effect{}, Continues: []Effect{}, Loads: []Load{}}
	out.addRemovedAccess(p.Access.Removed)
	for i := range p.Entries {
		e := &p.Entries[i]
		effect := Effect{What: e.Kind + " " + e.Key, Path: e.Path, Gone: e.Op == diff.Delete}
		switch {
		case e.Kind == kindGateway:
		case e.breaks != "":
			effect.What += ": " + e.breaks
			effect.Uncertain = e.mayContinue
			out.Breaks = append(out.Breaks, effect)
		case e.Remark == makeBeforeBreakNote, e.Kind == kindPair && e.Op == diff.Delete && e.Disruptive == "" && e.Remark != "":
			effect.What += ": " + e.Remark
			out.Continues = append(out.Continues, effect)
		case e.Kind == kindPair && e.Op == diff.Create:
			effect.What += ": direct link instead of transit once it is up"
			out.Continues = append(out.Continues, effect)
		}
		for _, f := range e.Fields {
			if e.Kind != kindClusterset || e.Op != diff.Update || f.Name != "tunnel.ipsec" {
				continue
			}
			if why := clustersetEffect(f); why != "" {
				out.Pauses = append(out.Pauses, Effect{What: "IPsec traffic: " + why, Path: f.Name})
			}
		}
	}
	detection := int((time.Duration(want.Health.Interval) * time.Duration(want.Health.Misses+1)) / time.Millisecond)
	for i := range want.Clusters {
		w := &want.Clusters[i]
		if h := have.Cluster(w.Name); h != nil {
			out.addGatewayEffects(w, h, detection)
		}
	}
	out.Loads = loadChanges(want, have)
	return out
}

// addRemovedAccess adds the effect of removed access on connections.
func (x *Impact) addRemovedAccess(list []access.Change) {
	breaks := slices.ContainsFunc(list, func(c access.Change) bool { return !c.Uncertain })
	mayBreak := slices.ContainsFunc(list, func(c access.Change) bool { return c.Uncertain })
	if breaks {
		x.Breaks = append(x.Breaks, Effect{What: "connections whose access is removed"})
	}
	if mayBreak {
		x.Breaks = append(x.Breaks, Effect{What: "connections to removed exports and ports: new ones fail", Uncertain: true})
	}
}

// addGatewayEffects adds the effect on connections through removed or changed gateways. detection
// is the time to detect a dead gateway in milliseconds.
func (x *Impact) addGatewayEffects(w, h *fabric.Cluster, detection int) {
	unchanged := map[string]bool{}
	var remaining []string
	for i := range w.Gateways {
		g := &w.Gateways[i]
		j := slices.IndexFunc(h.Gateways, func(o fabric.Gateway) bool { return o.Name == g.Name })
		if j >= 0 && restartReason(g, &h.Gateways[j]) == "" {
			unchanged[g.Name] = true
			remaining = append(remaining, w.Name+"/"+g.Name)
		}
	}
	for i := range h.Gateways {
		old := &h.Gateways[i]
		if unchanged[old.Name] || len(w.Gateways) == 0 {
			continue
		}
		name := w.Name + "/" + old.Name
		e := Effect{What: "traffic through " + name, Path: fmt.Sprintf("clusters[%s].gateways[%s]", w.Name,
			old.Name), AtMostMS: detection}
		j := slices.IndexFunc(w.Gateways, func(g fabric.Gateway) bool { return g.Name == old.Name })
		successor := slices.IndexFunc(w.Gateways, func(g fabric.Gateway) bool {
			return g.Name != old.Name && isSuccessor(&g, old)
		})
		switch {
		case j >= 0:
			e.What += ": " + restartReason(&w.Gateways[j], old)
		case successor >= 0:
			e.What += ": " + w.Name + "/" + w.Gateways[successor].Name + " replaces it at once"
		case len(remaining) > 0:
			e.What += " moves to " + strings.Join(remaining, ", ") + " first"
			e.AtMostMS, e.Gone = 0, true
			x.Continues = append(x.Continues, e)
			continue
		default:
			e.What += ": no gateway of " + w.Name + " remains"
		}
		e.Gone = j < 0
		if len(remaining) == 0 {
			e.AtMostMS = 0
		}
		x.Pauses = append(x.Pauses, e)
	}
}

// isSuccessor reports whether a new gateway has the ordinal, the node or an address of an old one.
func isSuccessor(g, old *fabric.Gateway) bool {
	return g.Ordinal == old.Ordinal || g.Node != "" && g.Node == old.Node || slices.ContainsFunc(g.Addresses,
		func(a netip.Addr) bool { return slices.Contains(old.Addresses, a) })
}

// restartReason returns the reason why the links of a gateway restart; empty if they do not.
func restartReason(g, old *fabric.Gateway) string {
	switch {
	case g.Node != old.Node:
		return "it moves to another node"
	case !maps.Equal(g.NodeSelector, old.NodeSelector):
		return "it may move to another node"
	case !slices.Equal(g.Addresses, old.Addresses):
		return "its tunnel address changes"
	}
	for _, k := range g.Keys {
		if i := slices.IndexFunc(old.Keys, func(o fabric.Key) bool { return o.Epoch == k.Epoch }); i >= 0 &&
			old.Keys[i].Public != k.Public {
			return "its tunnel key changes"
		}
	}
	return ""
}

// minTransitGrowth is the growth factor of transit traffic above which the plan reports a load.
const minTransitGrowth = 1.5

// loadChanges returns the loads of clusters with fewer gateways, and of clusters that forward much
// more transit traffic.
func loadChanges(want, have *fabric.Fabric) []Load {
	out := []Load{}
	if len(have.Clusters) == 0 || shape(want) == shape(have) && slices.EqualFunc(want.Clusters, have.Clusters,
		func(a, b fabric.Cluster) bool {
			return a.Name == b.Name && len(a.Gateways) == len(b.Gateways)
		}) {
		return out
	}
	graph := want.Graph()
	now, before := graph.TransitPairs(), have.Graph().TransitPairs()
	reached := map[string]int{}
	for _, group := range graph.Components() {
		for _, name := range group {
			reached[name] = len(group) - 1
		}
	}
	for i := range want.Clusters {
		c := &want.Clusters[i]
		old := have.Cluster(c.Name)
		if old == nil || len(c.Gateways) == 0 || len(c.Gateways) >= len(old.Gateways) &&
			float64(now[c.Name]) <= minTransitGrowth*float64(before[c.Name]) {
			continue
		}
		l := Load{Cluster: c.Name, TransitPairs: now[c.Name], TransitPairsBefore: before[c.Name], Pairs: reached[c.Name],
			GatewaysBefore: len(old.Gateways)}
		for _, g := range c.Gateways {
			l.Gateways = append(l.Gateways, c.Name+"/"+g.Name)
		}
		out = append(out, l)
	}
	return out
}

// Text describes the load on one line.
func (l *Load) Text() string {
	text := names(l.Gateways)
	if before := l.GatewaysBefore; before > len(l.Gateways) {
		text += fmt.Sprintf(" %s %d gateways, for %s", verbFor(l.Gateways, "replace"), before, humanize.Plural(l.Pairs, "other cluster"))
		if l.TransitPairs == 0 {
			return text
		}
		text += ", and"
	}
	text += fmt.Sprintf(" %s transit traffic of %s of other clusters", verbFor(l.Gateways, "forward"), humanize.Plural(l.TransitPairs, "pair"))
	if l.TransitPairsBefore == 0 {
		return text + ", none before"
	}
	return text + fmt.Sprintf(", %d before", l.TransitPairsBefore)
}

func verbFor(gateways []string, verb string) string {
	if len(gateways) == 1 {
		return verb + "s"
	}
	return verb
}

// locate sets the positions of the causes. A cause outside of the new topology has no position.
func (x *Impact) locate(source func(path string) string) {
	for _, list := range [][]Effect{x.Breaks, x.Pauses, x.Continues} {
		for i := range list {
			if list[i].Path != "" && !list[i].Gone {
				list[i].Source = source(list[i].Path)
			}
		}
	}
}

func (o *printer) impact(x *Impact) {
	if len(x.Breaks)+len(x.Pauses)+len(x.Continues)+len(x.Loads) == 0 {
		return
	}
	o.text("\n%s\n", o.paint(bold, "Impact on open connections:"))
	o.effects("break", x.Breaks)
	o.effects("pause", x.Pauses)
	o.effects("continue", x.Continues)
	for i := range x.Loads {
		if i == maxListed {
			o.text("  gateway load: %d more clusters (-o json lists all)\n", len(x.Loads)-i)
			return
		}
		o.text("  gateway load: %s\n", x.Loads[i].Text())
	}
}

func (o *printer) effects(verb string, list []Effect) {
	for i, e := range list {
		if i == maxListed {
			o.text("  %s: %d more (-o json lists all)\n", verb, len(list)-i)
			return
		}
		text := verb
		if e.Uncertain {
			text = "may " + verb
		}
		if verb == "pause" {
			text += " until both ends have the change"
			if e.AtMostMS > 0 {
				text = fmt.Sprintf("%s ≤%s", verb, time.Duration(e.AtMostMS)*time.Millisecond)
			}
		}
		at := cmp.Or(e.Source, e.Path)
		if at != "" {
			at = "  # " + at
		}
		o.text("  %s: %s%s\n", text, e.What, at)
	}
}
