// Package ui is the web page of a clusterset. A Snapshot has the content of the page at one time.
// The server of hawser ui serves its parts and pushes changes. hawser report writes the same page
// with an embedded snapshot as one file. The directory page has plain JavaScript modules without a
// build step. The data comes from a Source.
package ui

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/view/packettrace"
)

// Source provides the page's data. It is safe for concurrent use. A result of type any is
// the JSON output of the command in parentheses.
type Source interface {
	// Clusterset returns the clusterset of the current files. With an error it returns the last
	// readable clusterset, or nil. The pointer changes only if the files change.
	Clusterset(ctx context.Context) (*Clusterset, error)
	// Agents returns the agents' reports. It waits for a silent agent for about a second.
	// HasAgents is false if there are no agents to query.
	Agents(ctx context.Context) (Reports, error)
	// History returns the published commits, newest first (hawser history).
	History(ctx context.Context) (any, error)
	// Plan compares two commits of History. If to is empty, it compares with the current
	// topology (hawser diff). It refuses commits that are not in History.
	Plan(ctx context.Context, from, to string) (any, error)
	// Explain returns whether and how a target is reached (hawser explain, with --live if there
	// are agents to query).
	Explain(ctx context.Context, from, to string) (any, error)
	// Diagnose traces packets for a time (hawser diagnose).
	Diagnose(ctx context.Context, long time.Duration, addresses, exports []string) (*packettrace.Report, error)
}

// Clusterset is a clusterset as described by its files.
type Clusterset struct {
	Fabric *fabric.Fabric
	// PositionOf returns file and line of a topology path; empty if it is in no file.
	PositionOf func(path string) string
	File       string // file of the topology
	// Sources describe the page's sources for users: the file with its commit, and the publish
	// branch.
	Sources []string
	// Findings are the warnings of validation.
	Findings []Finding
}

// Reports are the responses of agents.
type Reports struct {
	HasAgents   bool
	From        string          // which agents were queried, for users
	Agents      []status.Status // of the agents that respond
	Unreachable []status.Unreachable
	// Old are the last reports of agents that currently do not respond.
	Old []status.Status
	// Problems are reported by the clusters' APIs, causes before their effects.
	Problems []health.Problem
}

// Config is the configuration of a server.
type Config struct {
	Source Source
	// Interval is the interval of queries to the agents, at least 100 ms.
	Interval time.Duration
	Log      *slog.Logger
	// Hosts are the host names that the page is served for, in addition to the names of the
	// loopback address: in lower case, without a port.
	Hosts []string
	// Token is the token for requests below /api/ (CheckToken). If empty, New creates one.
	Token string
	// Probe returns why the page has no content yet, for GET /readyz. Like /healthz, this path
	// needs no token; nil = neither path exists.
	Probe func() error
	// LiveCluster is the only cluster whose agents can be queried; empty = all clusters.
	LiveCluster string
	// HiddenViews are the parts that the page does not show, because the Source returns
	// ErrUnavailable for them: see Input.
	HiddenViews []string
	// Version is the version of this program.
	Version string
}

// ErrUnavailable is returned by a Source that does not have the requested data.
var ErrUnavailable error = userError{"not on the page of a cluster: run hawser ui on your machine"}

const (
	headerTimeout  = 5 * time.Second  // for the header of a browser's request
	idleTimeout    = 2 * time.Minute  // between two requests of a browser on a connection
	answerTimeout  = 30 * time.Second // for data of git, agents or clusters
	maxHeaderBytes = 16 << 10
)

// Server serves the page. Create it with New, then call Serve once.
type Server struct {
	config    Config
	publisher *publisher
	token     string
}

// New creates a server.
func New(config Config) *Server {
	return &Server{config: config, publisher: newPublisher(config), token: cmp.Or(config.Token, rand.Text())}
}

// URL returns the address that opens the page. origin is its scheme, host and port, such as
// http://127.0.0.1:8080. The token is in the fragment, which browsers do not send to servers or
// proxies. Because of the empty query, a tab that already shows the page loads it again.
func (s *Server) URL(origin string) string { return origin + "/?#token=" + s.token }

// Serve serves requests until ctx is done.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		s.publisher.current(ctx) // so that the first client need not wait
		s.publisher.run(ctx)
		return nil
	})
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	return group.Wait()
}

// Handler serves the files of the page to every browser of this machine. Paths below /api/ require
// the token.
func (s *Server) Handler() http.Handler {
	mux, api := http.NewServeMux(), http.NewServeMux()
	mux.HandleFunc("GET /{$}", serveFile(indexFile))
	for _, name := range pageFiles() {
		mux.HandleFunc("GET /"+name, serveFile(name))
	}
	mux.Handle("/api/", s.authenticate(api))
	api.HandleFunc("GET /api/map", s.serveMap)
	api.HandleFunc("GET /api/events", s.serveEvents)
	api.HandleFunc("GET /api/cluster", s.serveCluster)
	api.HandleFunc("GET /api/matrix", s.serveMatrix)
	api.HandleFunc("GET /api/node", s.serveNode)
	api.HandleFunc("GET /api/findings", s.serveFindings)
	source := s.config.Source
	api.HandleFunc("GET /api/history", s.answer(func(ctx context.Context, _ url.Values) (any, error) { return source.History(ctx) }))
	api.HandleFunc("GET /api/plan", s.answer(func(ctx context.Context, q url.Values) (any, error) {
		return source.Plan(ctx, q.Get("from"), q.Get("to"))
	}))
	api.HandleFunc("GET /api/explain", s.answer(func(ctx context.Context, q url.Values) (any, error) {
		return source.Explain(ctx, q.Get("from"), q.Get("to"))
	}))
	api.HandleFunc("POST /api/diagnose", s.serveDiagnosis)
	return s.requireAuth(mux)
}

// answer returns a handler that writes the result of query, or its error, as JSON.
func (s *Server) answer(query func(context.Context, url.Values) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		value, err := query(ctx, r.URL.Query())
		s.send(w, value, err)
	}
}

// userError is an error in a client's request.
type userError struct{ text string }

func (e userError) Error() string { return e.text }

// UserError returns an error in a client's request, such as an unknown name or an invalid text.
func UserError(text string) error { return userError{text} }

func (s *Server) send(w http.ResponseWriter, value any, err error) {
	code := http.StatusOK
	if err != nil {
		code, value = http.StatusBadGateway, map[string]string{"error": err.Error()}
		if errors.As(err, &userError{}) {
			code = http.StatusBadRequest
		}
	}
	raw, err := json.Marshal(value)
	if err != nil {
		code, raw = http.StatusInternalServerError, []byte(`{"error":"the answer could not be written"}`)
		s.config.Log.Error("answer not written", "err", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if _, err := w.Write(raw); err != nil {
		s.config.Log.Debug("answer not sent", "err", err)
	}
}
