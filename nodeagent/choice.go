package nodeagent

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

const (
	// mostMoves is how many moves are kept for status.
	mostMoves = 64
	// settleTime is how long a link of the run before stays chosen while nobody
	// said anything of it yet.
	settleTime = 2 * time.Second
)

// choice keeps which link carries the traffic to each other cluster, and tells of
// each move. Only the engine's goroutine calls look; status may be asked for by any.
type choice struct {
	cluster string
	log     *slog.Logger
	began   time.Time
	moved   func(m status.Move, path project.Path) // may be nil

	table *health.Table
	had   map[string]bool         // links that were chosen once, as remote cluster and link
	owned map[string]project.Path // the own links of this gateway that take what others hand to it

	mu    sync.Mutex
	links map[string]chosen // to each neighbour
	last  map[string]chosen // what leads to each other cluster
	moves []status.Move     // the newest at the end
}

// chosen is the link to one remote cluster.
type chosen struct {
	health.Choice
	since    time.Time
	restored bool // from the run before, and not confirmed yet
	// over are the clusters on the way, the remote one last, joined by spaces; empty
	// = a neighbour. former = the way is one of a shape that is left.
	over   string
	former bool
}

// stay keeps the link when nothing lives: agents that are all dead answer no
// probes, and their tunnels may carry on where they were left.
func (h chosen) stay(want health.Choice) chosen {
	path := h.Path
	path.Down = true
	return chosen{Choice: health.Choice{Path: path, Rank: want.Rank, Why: want.Why + ", so it stays"}, since: h.since}
}

func newChoice(cluster string, log *slog.Logger, now time.Time) *choice {
	return &choice{
		cluster: cluster, log: log, began: now, links: map[string]chosen{}, last: map[string]chosen{}, had: map[string]bool{},
	}
}

// ways is what a look decides.
type ways struct {
	paths   map[string]project.Path // by remote cluster
	transit map[string]project.Path // on a gateway, its own links
	links   map[string]project.Path // to neighbours, whether or not they are the way there
	passing *project.Passing        // what this cluster says of them; nil in a mesh
	former  bool                    // some way is one of a shape that is left
}

// look chooses anew. live is what other clusters say.
func (c *choice) look(f *fabric.Fabric, v sight, live map[string]project.Live, now time.Time) ways {
	if c.table == nil || !c.table.Same(f, v.before) {
		c.table = health.NewTable(f, v.before)
	}
	w := ways{paths: map[string]project.Path{}, links: map[string]project.Path{}}
	if v.gateway != "" {
		w.transit = c.own(health.Transit(c.table, c.cluster, v.gateway, v.snapshot), v)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	links := make(map[string]chosen, len(c.links))
	for remote, want := range health.Paths(c.table, c.cluster, v.snapshot) {
		links[remote] = c.follow(remote, want, v, now)
		w.links[remote] = links[remote].Path
	}
	c.links = links
	if c.table.Net().Mesh() {
		c.last, w.paths = links, w.links
		return w
	}
	c.around(&w, v, live, now)
	return w
}

// follow takes a choice over, and tells when it is another one.
func (c *choice) follow(remote string, want health.Choice, v sight, now time.Time) chosen {
	have, known := c.links[remote]
	if known && sameLink(have.Path, want.Path) {
		return chosen{Choice: want, since: have.since}
	}
	if have.restored && now.Sub(c.began) < settleTime && v.rank(remote, have.Path) > health.Down {
		have.Rank = v.rank(remote, have.Path)
		return have
	}
	if known && want.Rank == health.Down && v.exists(remote, have.Path) {
		return have.stay(want)
	}
	m := status.Move{At: now, Cluster: remote, To: v.name(remote, want.Path)}
	if known {
		m.From = v.name(remote, have.Path)
		m.Silent = v.silent(remote, have.Path, now)
	}
	m.Kind, m.Cause = v.cause(remote, have, want, c.had[remote+" "+m.To])
	c.had[remote+" "+m.To] = true
	c.tell(m, want.Path)
	return chosen{Choice: want, since: now}
}

// own gives this gateway's own links, those that were used last where none lives.
func (c *choice) own(want map[string]project.Path, v sight) map[string]project.Path {
	for remote, path := range want {
		if have, known := c.owned[remote]; known && path.Down && have.Local == v.gateway && v.exists(remote, have) {
			have.Down = true
			want[remote] = have
		}
	}
	c.owned = maps.Clone(want)
	return want
}

// settled looks again when links of the run before need no longer be kept: perhaps
// nothing else happens then.
func settled(ctx context.Context, look func()) {
	if pause(ctx, settleTime); ctx.Err() == nil {
		look()
	}
}

func (c *choice) tell(m status.Move, path project.Path) {
	c.moves = append(c.moves, m)
	if len(c.moves) > mostMoves {
		c.moves = slices.Delete(c.moves, 0, len(c.moves)-mostMoves)
	}
	attrs := []any{"cluster", m.Cluster, "from", orNone(m.From), "to", m.To, "cause", m.Cause}
	if m.Silent != "" {
		attrs = append(attrs, "silent", m.Silent)
	}
	c.log.Info("moved", attrs...)
	if c.moved != nil {
		c.moved(m, path)
	}
}

// state gives the links in use and the last moves, for status.
func (c *choice) state(v sight) ([]status.Path, []status.Move) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []status.Path
	for _, remote := range slices.Sorted(maps.Keys(c.last)) {
		have := c.last[remote]
		p := status.Path{
			Cluster: remote, Link: v.name(remote, have.Path), LocalGateway: have.Local, RemoteGateway: have.Remote,
			Rank: have.Rank.String(), Why: have.Why, Since: have.since, MTU: have.MTU, Through: have.through(),
		}
		for i := range c.moves {
			if c.moves[i].Cluster == remote {
				p.LastMove = &c.moves[i]
			}
		}
		if p.LastMove != nil {
			move := *p.LastMove
			p.LastMove = &move
		}
		out = append(out, p)
	}
	return out, slices.Clone(c.moves)
}

func sameLink(a, b project.Path) bool { return a.Local == b.Local && a.Remote == b.Remote }

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
