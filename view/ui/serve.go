package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

func (s *Server) serveMap(w http.ResponseWriter, r *http.Request) {
	p, _ := s.publisher.current(r.Context())
	s.send(w, p.full(), nil)
}

// heartbeatInterval is the maximum time between events, by which a page detects a lost connection.
const heartbeatInterval = time.Second

// serveEvents sends changes to a page as server-sent events. The first event, and each event after
// the set of clusters changed, is whole; other events are change. A slow page receives several
// changes as one.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	defer s.publisher.watch()()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	var sent *Snapshot
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	for {
		now, changed := s.publisher.current(r.Context())
		var name string
		var value any
		switch {
		case sent == nil || sent.head.Digest != now.head.Digest:
			name, value = "whole", now.full()
		case sent != now:
			name, value = "change", now.since(sent)
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
		sent = now
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// serveCluster handles GET /api/cluster?name=g1, the paths from the cluster to all others.
func (s *Server) serveCluster(w http.ResponseWriter, r *http.Request) {
	p, _ := s.publisher.current(r.Context())
	name := r.URL.Query().Get("name")
	f := p.set.Fabric
	if f.Cluster(name) == nil {
		s.send(w, nil, userError{fmt.Sprintf("there is no cluster %q in the topology", name)})
		return
	}
	s.send(w, map[string]any{"name": name, "paths": p.paths(name, p.links())}, nil)
}

// serveMatrix handles GET /api/matrix, who can reach which export. The repeatable parameters
// cluster=g1 and export=shop/web select clusters and exports.
func (s *Server) serveMatrix(w http.ResponseWriter, r *http.Request) {
	p, _ := s.publisher.current(r.Context())
	table, err := p.matrix(r.URL.Query()["cluster"], r.URL.Query()["export"])
	if err != nil {
		err = userError{err.Error()}
	}
	s.send(w, table, err)
}

// serveFindings handles GET /api/findings, problems and versions.
func (s *Server) serveFindings(w http.ResponseWriter, r *http.Request) {
	p, _ := s.publisher.current(r.Context())
	s.send(w, p.findings(), nil)
}

// nodePart is the last report of an agent.
type nodePart struct {
	*status.Status
	// LastAnswer is the time of the report if the agent currently does not respond; otherwise
	// nil.
	LastAnswer *time.Time `json:"lastAnswer,omitempty"`
}

// serveNode handles GET /api/node?cluster=g1&node=g1-gw, the last report of the node's agent.
func (s *Server) serveNode(w http.ResponseWriter, r *http.Request) {
	p, _ := s.publisher.current(r.Context())
	q := r.URL.Query()
	for _, list := range [][]status.Status{p.agents, p.old} {
		for i := range list {
			if a := &list[i]; a.Cluster == q.Get("cluster") && a.Node == q.Get("node") {
				s.send(w, nodePart{a, p.lastAnswer(a)}, nil)
				return
			}
		}
	}
	s.send(w, nil, userError{fmt.Sprintf("no agent of node %q in cluster %q answered", q.Get("node"), q.Get("cluster"))})
}

// Limits of the time in which the page can follow packets.
const (
	minTrace = 2 * time.Second
	maxTrace = time.Minute
)

// serveDiagnosis handles POST /api/diagnose?for=5s&export=shop/web: agents follow packets.
func (s *Server) serveDiagnosis(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	duration, err := time.ParseDuration(q.Get("for"))
	if err != nil || duration < minTrace || duration > maxTrace {
		s.send(w, nil, userError{fmt.Sprintf("for: a time from %s to %s", minTrace, maxTrace)})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), duration+answerTimeout)
	defer cancel()
	value, err := s.config.Source.Diagnose(ctx, duration, q["address"], q["export"])
	s.send(w, drawTraces(value), err)
}
