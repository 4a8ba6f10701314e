package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
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
	had   map[string]bool // links that were chosen once, as remote cluster and link

	mu    sync.Mutex
	last  map[string]chosen
	moves []status.Move // the newest at the end
}

// chosen is the link to one remote cluster.
type chosen struct {
	health.Choice
	since    time.Time
	restored bool // from the run before, and not confirmed yet
}

// stay keeps the link when nothing lives: agents that are all dead answer no
// probes, and their tunnels may carry on where they were left.
func (h chosen) stay(want health.Choice) chosen {
	path := h.Path
	path.Down = true
	return chosen{Choice: health.Choice{Path: path, Rank: want.Rank, Why: want.Why + ", so it stays"}, since: h.since}
}

func newChoice(cluster string, log *slog.Logger, now time.Time) *choice {
	return &choice{cluster: cluster, log: log, began: now, last: map[string]chosen{}, had: map[string]bool{}}
}

// ways is what a look decides.
type ways struct {
	paths   map[string]project.Path // by remote cluster
	transit map[string]project.Path // on a gateway, its own links
}

// look chooses anew.
func (c *choice) look(f *fabric.Fabric, gateway string, s health.Snapshot, now time.Time) ways {
	if c.table == nil || !c.table.Same(f) {
		c.table = health.NewTable(f)
	}
	w := ways{paths: map[string]project.Path{}}
	if gateway != "" {
		w.transit = health.Transit(c.table, c.cluster, gateway, s)
	}
	view := sight{fabric: f, cluster: c.cluster, gateway: gateway, snapshot: s}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[string]chosen, len(c.last))
	for remote, want := range health.Paths(c.table, c.cluster, s) {
		next[remote] = c.follow(remote, want, view, now)
		w.paths[remote] = next[remote].Path
	}
	c.last = next
	return w
}

// follow takes a choice over, and tells when it is another one.
func (c *choice) follow(remote string, want health.Choice, v sight, now time.Time) chosen {
	have, known := c.last[remote]
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
			Rank: have.Rank.String(), Why: have.Why, Since: have.since, MTU: have.MTU,
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

// sight is what a node sees at one moment.
type sight struct {
	fabric   *fabric.Fabric
	cluster  string
	gateway  string // of this node; empty when it is none
	snapshot health.Snapshot
}

// name gives a link as g1/a-g2/b.
func (v sight) name(remote string, p project.Path) string {
	return v.cluster + "/" + p.Local + "-" + remote + "/" + p.Remote
}

func (v sight) rank(remote string, p project.Path) health.Rank {
	return v.snapshot.Rank(p.Local, health.Peer{Cluster: remote, Gateway: p.Remote})
}

// exists reports whether the fabric has both ends of a link.
func (v sight) exists(remote string, p project.Path) bool {
	return hasGateway(v.fabric.Cluster(v.cluster), p.Local) && hasGateway(v.fabric.Cluster(remote), p.Remote)
}

func hasGateway(c *fabric.Cluster, name string) bool {
	return c != nil && slices.ContainsFunc(c.Gateways, func(g fabric.Gateway) bool { return g.Name == name })
}

// link is what this node itself probes of a path: the tunnel on its gateway, on
// other nodes the way to that gateway.
func (v sight) link(remote string, p project.Path) (health.Link, bool) {
	peer := health.Peer{Cluster: v.cluster, Gateway: p.Local}
	if v.gateway == p.Local {
		peer = health.Peer{Cluster: remote, Gateway: p.Remote}
	}
	i := slices.IndexFunc(v.snapshot.Links, func(l health.Link) bool { return l.Target.Peer == peer })
	if i < 0 {
		return health.Link{}, false
	}
	return v.snapshot.Links[i], true
}

// silent is for how long a link that was left has answered nothing: since it was
// asked for the last answer; empty = it does.
func (v sight) silent(remote string, p project.Path, now time.Time) string {
	link, probed := v.link(remote, p)
	if !probed || link.State != status.Disconnected {
		return ""
	}
	last := link.Answered
	if last.IsZero() {
		last = link.Since
	}
	return now.Sub(last).Round(time.Millisecond).String()
}

// Kinds of causes, as the metric has them.
const (
	causeFirst   = "first"
	causeRemoved = "removed"
	causeDead    = "dead"
	causeAlone   = "alone"
	causeDrains  = "drains"
	causeFlaps   = "unsteady"
	causeFollows = "follows"
	causeSteady  = "steady"
	causeBetter  = "better"
)

// cause says why a link was left, or taken. had tells that the new one was in use
// before.
func (v sight) cause(remote string, have chosen, want health.Choice, had bool) (kind, text string) {
	if have.Local == "" && have.Remote == "" {
		return causeFirst, "first choice"
	}
	if gone := v.removed(remote, have.Path); gone != "" {
		return causeRemoved, "gateway removed: " + gone
	}
	switch rank := v.rank(remote, have.Path); {
	case rank >= want.Rank && strings.HasPrefix(want.Why, "follows "):
		return causeFollows, want.Why
	case rank == health.Down:
		return causeDead, v.death(remote, have.Path)
	case rank == health.Alone:
		return causeAlone, v.reason(remote, have.Path, "one of its gateways reaches no other node of its cluster")
	case rank == health.Draining && rank < want.Rank:
		return causeDrains, v.reason(remote, have.Path, "one of its gateways drains")
	case rank == health.Unsteady && rank < want.Rank:
		return causeFlaps, v.reason(remote, have.Path, "link is unsteady")
	case had:
		return causeSteady, "link is steady again"
	}
	return causeBetter, "a better link is ready"
}

// removed names the gateway of a link that the fabric no longer holds.
func (v sight) removed(remote string, p project.Path) string {
	for _, end := range []health.Peer{{Cluster: v.cluster, Gateway: p.Local}, {Cluster: remote, Gateway: p.Remote}} {
		c := v.fabric.Cluster(end.Cluster)
		if c == nil || !slices.ContainsFunc(c.Gateways, func(g fabric.Gateway) bool { return g.Name == end.Gateway }) {
			return end.String()
		}
	}
	return ""
}

// death tells who does not answer.
func (v sight) death(remote string, p project.Path) string {
	link, probed := v.link(remote, p)
	if probed && link.State == status.Disconnected {
		last := link.Answered
		if last.IsZero() {
			last = link.Since
		}
		return link.Target.Peer.String() + " does not answer probes since " + last.Format("15:04:05.000")
	}
	if v.gateway == p.Local {
		return v.reason(remote, p, remote+"/"+p.Remote+" is down")
	}
	return v.cluster + "/" + p.Local + " does not reach " + remote + "/" + p.Remote
}

// reason is what the prober says of a link, or else a text.
func (v sight) reason(remote string, p project.Path, otherwise string) string {
	if link, probed := v.link(remote, p); probed && v.gateway == p.Local && link.Why != "" {
		return link.Why
	}
	return otherwise
}

// keptPath is a link in use as the state folder holds it for the next start.
type keptPath struct {
	Local  string    `json:"local"`
	Remote string    `json:"remote"`
	Since  time.Time `json:"since"`
	Why    string    `json:"why"`
}

// kept gives the links in use, by remote cluster.
func (c *choice) kept() map[string]keptPath {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]keptPath, len(c.last))
	for remote, have := range c.last {
		out[remote] = keptPath{Local: have.Local, Remote: have.Remote, Since: have.since, Why: have.Why}
	}
	return out
}

// restore begins with the links of the run before, so that a restart moves nothing.
func (c *choice) restore(kept map[string]keptPath) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for remote, k := range kept {
		path := project.Path{Local: k.Local, Remote: k.Remote}
		c.last[remote] = chosen{Choice: health.Choice{Path: path, Why: k.Why}, since: k.Since, restored: true}
		c.had[remote+" "+sight{cluster: c.cluster}.name(remote, path)] = true
	}
}

// saver writes the links in use to the state folder when they changed. It has a
// goroutine of its own, as a disk may hang.
type saver struct {
	path string
	wake chan struct{} // size one
	last map[string]keptPath
}

func (s *saver) run(ctx context.Context, kept func() map[string]keptPath, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			s.save(kept(), log)
		}
	}
}

func (s *saver) save(kept map[string]keptPath, log *slog.Logger) {
	if maps.Equal(kept, s.last) {
		return
	}
	raw, err := json.Marshal(kept)
	if err == nil {
		err = writeAtomic(s.path, raw)
	}
	if err != nil {
		log.Debug("links in use not saved", "err", err)
		return
	}
	s.last = kept
}

// load gives what was saved; nothing when that cannot be read, as it only spares moves.
func (s *saver) load(log *slog.Logger) map[string]keptPath {
	raw, err := os.ReadFile(s.path)
	if err == nil {
		err = json.Unmarshal(raw, &s.last)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Warn("links of the run before not read", "err", err)
		s.last = nil
	}
	return s.last
}
