package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/view/matrix"
)

func (s *Server) serveMap(w http.ResponseWriter, r *http.Request) {
	p, _ := s.feed.current(r.Context())
	s.send(w, p.whole(), nil)
}

// beat is how often at least an event comes, so that a page knows that it still hears.
const beat = time.Second

// serveEvents tells a page what changes, as server-sent events: whole first and whenever the
// clusters are others, then change. One that is slow gets several changes as one.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	defer s.feed.watch()()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	var told *picture
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		now, changed := s.feed.current(r.Context())
		var name string
		var value any
		switch {
		case told == nil || told.head.Digest != now.head.Digest:
			name, value = "whole", now.whole()
		case told != now:
			name, value = "change", now.since(told)
		default:
			name, value = "beat", map[string]time.Time{"at": now.head.At}
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, raw); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
		told = now
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// way is how one cluster sends to another.
type way struct {
	To      string   `json:"to"`
	Through []string `json:"through,omitempty"` // clusters that pass it on
	Link    string   `json:"link,omitempty"`    // g1/a-g2/b
	Rank    string   `json:"rank,omitempty"`
	Why     string   `json:"why,omitempty"`
	Move    string   `json:"move,omitempty"` // the last
	// Reported says that an agent told so; otherwise it is what holds while all links live.
	Reported bool `json:"reported"`
}

// serveCluster answers GET /api/cluster?name=g1: how it sends to each other one.
func (s *Server) serveCluster(w http.ResponseWriter, r *http.Request) {
	p, _ := s.feed.current(r.Context())
	name := r.URL.Query().Get("name")
	f := p.set.Fabric
	if f.Cluster(name) == nil {
		s.send(w, nil, wrong{fmt.Sprintf("there is no cluster %q in the topology", name)})
		return
	}
	reported := map[string]status.Path{}
	for i := range p.agents {
		for _, path := range p.agents[i].Paths {
			if p.agents[i].Cluster == name {
				reported[path.Cluster] = path
			}
		}
	}
	ways := []way{}
	var table *health.Table
	if len(f.Clusters) <= mostTable {
		table = health.NewTable(f, nil)
	}
	for to, hops := range f.Graph().Paths(name, nil) {
		out := way{To: to, Through: hops[:len(hops)-1]}
		if path, ok := reported[to]; ok {
			out.Through, out.Link, out.Rank, out.Why, out.Reported = path.Through, path.Link, path.Rank, path.Why, true
			if path.LastMove != nil {
				out.Move = path.LastMove.At.UTC().Format(time.RFC3339) + " from " + path.LastMove.From + ": " + path.LastMove.Cause
			}
		} else if table != nil {
			if first, ok := table.First(name, hops[0]); ok {
				out.Link = name + "/" + first.Local + "-" + hops[0] + "/" + first.Remote
			}
		}
		ways = append(ways, out)
	}
	slices.SortFunc(ways, func(a, b way) int { return strings.Compare(a.To, b.To) })
	s.send(w, map[string]any{"name": name, "ways": ways}, nil)
}

// serveMatrix answers GET /api/matrix: who reaches which export; of some clusters and exports
// with cluster=g1 and export=shop/web, which may be repeated.
func (s *Server) serveMatrix(w http.ResponseWriter, r *http.Request) {
	p, _ := s.feed.current(r.Context())
	in := matrix.Input{Position: p.set.Place, Clusters: r.URL.Query()["cluster"], Exports: r.URL.Query()["export"]}
	if len(p.set.Fabric.Clusters) <= mostTable {
		table := health.NewTable(p.set.Fabric, nil)
		in.PreferredLink = func(a, b string) (string, string, bool) {
			first, ok := table.First(a, b)
			return first.Local, first.Remote, ok
		}
	}
	if p.head.Live && p.head.Of == "" { // what one cluster's agents report is not enough
		in.Reports = &access.AgentReports{Agents: p.agents, Unreachable: map[string]string{}}
		for _, u := range p.head.Silent {
			if name, _, _ := strings.Cut(u.Who, "/"); name != "" {
				in.Reports.Unreachable[name] = u.Error
			}
		}
	}
	made, err := matrix.New(p.set.Fabric, in)
	if err != nil {
		err = wrong{err.Error()}
	}
	s.send(w, made, err)
}

// mostTable is up to how many clusters it is worked out which gateways a pair would use.
const mostTable = 300

// serveNode answers GET /api/node?cluster=g1&node=g1-gw: what its agent told last.
func (s *Server) serveNode(w http.ResponseWriter, r *http.Request) {
	p, _ := s.feed.current(r.Context())
	q := r.URL.Query()
	for i := range p.agents {
		if a := &p.agents[i]; a.Cluster == q.Get("cluster") && a.Node == q.Get("node") {
			s.send(w, a, nil)
			return
		}
	}
	s.send(w, nil, wrong{fmt.Sprintf("no agent of node %q in cluster %q answered", q.Get("node"), q.Get("cluster"))})
}

// How long packets may be followed from the page.
const (
	leastTrace = 2 * time.Second
	mostTrace  = time.Minute
)

// serveDiagnosis answers POST /api/diagnose?for=5s&export=shop/web: agents follow packets.
func (s *Server) serveDiagnosis(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	long, err := time.ParseDuration(q.Get("for"))
	if err != nil || long < leastTrace || long > mostTrace {
		s.send(w, nil, wrong{fmt.Sprintf("for: a time from %s to %s", leastTrace, mostTrace)})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), long+answerTimeout)
	defer cancel()
	value, err := s.config.Source.Diagnose(ctx, long, q["address"], q["export"])
	s.send(w, value, err)
}
