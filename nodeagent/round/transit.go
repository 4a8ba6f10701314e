package round

import (
	"maps"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// transit decides, where not all clusters are linked, by which neighbour each one
// is reached, and says what this cluster's links are worth for that.
func (c *choice) transit(w *paths, v snapshot, live map[string]model.Live, now time.Time) {
	know := knowledge{choice: c, snapshot: v, live: live}
	found := health.Routes(c.table.Net(), c.Cluster, health.Links{
		Own:     func(n string) health.Rank { return c.Links[n].Rank },
		Transit: know.transit,
	})
	next := make(map[string]chosen, len(found))
	for i := range v.fabric.Clusters {
		remote := v.fabric.Clusters[i].Name
		route, ok := found[remote]
		if remote == c.Cluster {
			continue
		}
		if have, kept := c.keep(remote, route, ok, v, now); kept {
			next[remote] = have
		} else if ok {
			next[remote] = c.take(remote, route, know, v, now)
		} else if link, near := c.Links[remote]; near {
			next[remote] = link
		}
	}
	c.Last = next
	var former []string
	for remote, have := range next {
		w.remote[remote] = have.Path
		if have.Former {
			former = append(former, remote)
		}
	}
	w.former = goesOver(c.table.Net().Now, c.Cluster, former)
	w.own = throughOwn(w.remote, w.own)
	w.advertise = know.advertise()
}

// goesOver reports whether some of the clusters that are reached on routes of the former
// shape get one of the new shape. Those that do not are not waited for.
func goesOver(now *fabric.Graph, own string, former []string) bool {
	if len(former) == 0 {
		return false
	}
	paths := now.Paths(own, nil)
	return slices.ContainsFunc(former, func(remote string) bool { return len(paths[remote]) > 0 })
}

// throughOwn gives a gateway's own link for each cluster: that to the next one.
func throughOwn(paths, links map[string]model.Path) map[string]model.Path {
	if links == nil {
		return nil
	}
	out := make(map[string]model.Path, len(paths))
	for remote, path := range paths {
		if own, ok := links[path.Next(remote)]; ok {
			own.Via, own.MTU = path.Via, path.MTU
			out[remote] = own
		}
	}
	return out
}

// keep gives the route that was used last when nothing lives, as for a link, or
// when nothing was heard yet since the start. Its link is the one that leads to
// its first cluster now.
func (c *choice) keep(remote string, route health.Route, found bool, v snapshot, now time.Time) (chosen, bool) {
	have, known := c.Last[remote]
	link, near := c.Links[have.Via]
	if !known || have.Via == "" || !near || !v.exists(remote, link.onward(have.Via)) {
		return chosen{}, false
	}
	early := have.Restored && now.Sub(c.Began) < SettleTime && link.Rank > health.Down
	if found && (!early || strings.Join(route.Over, " ") == have.Over) || !found && c.Links[remote].Rank > health.Down {
		return chosen{}, false
	}
	path := link.onward(have.Via)
	path.MTU, path.Down = have.MTU, !early
	if early {
		return chosen{
			Choice: health.Choice{Path: path, Rank: link.Rank, Why: have.Why}, Since: have.Since, Restored: true, Over: have.Over,
		}, true
	}
	return chosen{Choice: health.Choice{Path: path, Why: "no live link: keeping the last path"}, Since: have.Since, Over: have.Over}, true
}

// onward is the link of a neighbour as the route to a cluster behind it.
func (h chosen) onward(via string) model.Path {
	return model.Path{Local: h.Local, Remote: h.Remote, Via: via}
}

// take makes a route the one in use.
func (c *choice) take(remote string, route health.Route, know knowledge, v snapshot, now time.Time) chosen {
	have, known := c.Last[remote]
	link := c.Links[route.Over[0]]
	out := link
	if len(route.Over) > 1 {
		path := link.onward(route.Over[0])
		path.MTU = know.size(route.Over)
		out = chosen{
			Choice: health.Choice{Path: path, Rank: route.Rank, Why: whyThrough(route)},
			Since:  now, Over: strings.Join(route.Over, " "),
		}
		if known && have.Over == out.Over {
			out.Since = have.Since
		}
	}
	out.Former = route.Former
	if known && have.Via != out.Via && (have.Local != "" || have.Remote != "") {
		m := status.Move{At: now, Cluster: remote, From: v.route(remote, have), To: v.route(remote, out), Kind: causeWay, Cause: wayCause(have, out)}
		c.moved(m)
	}
	return out
}

func whyThrough(route health.Route) string {
	over := route.Over[:len(route.Over)-1]
	why := "through " + strings.Join(over, ", ")
	if route.Former {
		why += " (until links of the new shape are proved)"
	}
	return why
}

// through gives the clusters that pass on.
func (h chosen) through() []string {
	if h.Via == "" {
		return nil
	}
	names := strings.Fields(h.Over)
	return names[:max(len(names)-1, 0)]
}

// route gives a route for people: the link, and the cluster in transit.
func (v snapshot) route(remote string, have chosen) string {
	text := v.name(remote, have.Path)
	if through := have.through(); len(through) > 0 {
		text += " through " + strings.Join(through, ", ")
	}
	return text
}

func wayCause(have, next chosen) string {
	switch {
	case next.Via == "":
		return "a link of its own is proved"
	case have.Via == "":
		return "no link of its own lives, or none is meant to"
	case have.Rank == health.Down:
		return "no path through " + have.Via + " lives"
	}
	return "the path through " + next.Via + " is better now"
}

// knowledge is what is known of links for what is passed on.
type knowledge struct {
	choice   *choice
	snapshot snapshot
	live     map[string]model.Live
}

// transit ranks the link of two clusters: by the own view when this cluster is one
// of them, otherwise by the lower of what the two say. While neither has said
// anything it is taken to be good.
func (k knowledge) transit(a, b string) health.Rank {
	switch k.choice.Cluster {
	case a:
		return k.own(b)
	case b:
		return k.own(a)
	}
	return min(k.says(a, b).rank(), k.says(b, a).rank())
}

// own ranks the link to a neighbour, which both ends must take things from.
func (k knowledge) own(n string) health.Rank {
	link, near := k.choice.Links[n]
	if !near || !k.snapshot.links.Takes(link.Local, health.Peer{Cluster: n, Gateway: link.Remote}) {
		return health.Down
	}
	return link.Rank
}

// word is what a cluster says of its link to a neighbour.
type word struct{ *model.Edge }

func (w word) rank() health.Rank {
	if w.Edge == nil {
		return health.Good
	}
	return health.Rank(min(max(w.Rank, 0), int(health.Good)))
}

func (k knowledge) says(cluster, neighbour string) word {
	live, heard := k.live[cluster]
	if !heard {
		return word{}
	}
	if live.Transit == nil {
		return word{&model.Edge{}}
	}
	i := slices.IndexFunc(live.Transit.Edges, func(e model.Edge) bool { return e.Cluster == neighbour })
	if i < 0 {
		return word{}
	}
	return word{&live.Transit.Edges[i]}
}

// size is what fits through the links of a route behind the first one, in bytes,
// where that is less than they should carry; 0 otherwise.
func (k knowledge) size(over []string) int {
	size := 0
	for i := range over[1:] {
		for _, w := range []word{k.says(over[i], over[i+1]), k.says(over[i+1], over[i])} {
			if w.Edge != nil && w.MTU > 0 && (size == 0 || w.MTU < size) {
				size = w.MTU
			}
		}
	}
	return size
}

// advertise is what this cluster says of its links.
func (k knowledge) advertise() *model.Transit {
	out := &model.Transit{}
	for _, n := range slices.Sorted(maps.Keys(k.choice.Links)) {
		if rank, mtu := k.own(n), k.snapshot.fits(n, k.choice.Links[n].Path); rank < health.Good || mtu > 0 {
			out.Edges = append(out.Edges, model.Edge{Cluster: n, Rank: int(rank), MTU: mtu})
		}
	}
	return out
}
