// Package metrics exposes an agent's Prometheus metrics: counters of its rounds, and its status at
// the time of a scrape.
package metrics

import (
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/dns"
	"hawser.dev/hawser/nodeagent/status"
)

// maxScrapes is the maximum number of concurrent scrapes. Anyone who reaches the port can scrape.
const maxScrapes = 4

// Metrics are the metrics of one agent, in their own registry. All metrics have labels for the
// cluster and the node, except metrics of the Go runtime and the process. So alerts do not depend
// on the scrape configuration.
type Metrics struct {
	registry *prometheus.Registry
	own      prometheus.Registerer // registers in registry, with labels
	last     prometheus.Gauge
	passes   *prometheus.CounterVec
	seconds  prometheus.Histogram
	changes  *prometheus.CounterVec
	drift    *prometheus.CounterVec
	objects  *prometheus.GaugeVec
	pending  *prometheus.GaugeVec
	queries  *prometheus.CounterVec
	replaced *prometheus.CounterVec
	moves    *prometheus.CounterVec
	refused  *prometheus.CounterVec

	driftTotal atomic.Int64
}

// New returns the metrics of a node.
func New(cluster, node string) *Metrics {
	registry := prometheus.NewRegistry()
	m := &Metrics{
		registry: registry,
		own:      prometheus.WrapRegistererWith(prometheus.Labels{"cluster": cluster, "node": node}, registry),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hawser_last_pass_timestamp_seconds", Help: "Start of the last converge round, in seconds since 1970."}),
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hawser_passes_total", Help: "Converge rounds by result: clean, blocked or failed."}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "hawser_pass_seconds", Help: "Time of a converge round.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hawser_changes_total", Help: "Changes made, by kind and operation."}, []string{"kind", "op"}),
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hawser_drift_total", Help: "Changes that repaired drift, by kind."}, []string{"kind"}),
		objects: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hawser_objects", Help: "Objects of Hawser on this node, by kind."}, []string{"kind"}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hawser_undone", Help: "Changes that the last round did not make: blocked, failed, or fight (another program reverts them)."}, []string{"state"}),
		queries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hawser_dns_queries_total", Help: "Answered queries."}, []string{"transport", "type", "rcode"}),
		replaced: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hawser_tunnel_replaced_total", Help: "Tunnel processes that ended or hung, and were replaced, by device."}, []string{"link"}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hawser_moves_total", Help: "Moves of the link to another cluster, by cluster and kind of cause."},
			[]string{"remote_cluster", "cause"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hawser_endpoints_refused_total", Help: "Endpoints of gateways that a cluster announced and the agent refused, by cluster."},
			[]string{"remote_cluster"}),
	}
	m.own.MustRegister(m.last, m.passes, m.seconds, m.changes, m.drift, m.objects, m.pending, m.queries, m.replaced, m.moves, m.refused)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, result := range []string{resultClean, resultBlocked, resultFailed} {
		m.passes.WithLabelValues(result)
	}
	for _, transport := range []string{"udp", "tcp"} {
		for _, typ := range []string{"A", "AAAA"} {
			for _, rcode := range []string{"NOERROR", "NXDOMAIN", "SERVFAIL", "REFUSED"} {
				m.queries.WithLabelValues(transport, typ, rcode)
			}
		}
	}
	return m
}

// Results of a round.
const (
	resultClean, resultBlocked, resultFailed = "clean", "blocked", "failed"
)

// InitKinds starts the counters of kinds of objects at 0. If a counter first appears with its first
// event, increase() misses that event (https://prometheus.io/docs/practices/instrumentation, avoid
// missing metrics).
func (m *Metrics) InitKinds(kinds []string) {
	for _, kind := range kinds {
		m.drift.WithLabelValues(kind)
		for _, op := range []diff.Op{diff.Create, diff.Update, diff.Replace, diff.Delete} {
			m.changes.WithLabelValues(kind, string(op))
		}
	}
}

// Tunnel starts the counter of replaced processes of a device with a userspace tunnel at 0.
func (m *Metrics) Tunnel(link string) { m.replaced.WithLabelValues(link) }

// ObserveReport records the report of a round.
func (m *Metrics) ObserveReport(r converge.Report) {
	result := resultClean
	switch {
	case len(r.Failed) > 0:
		result = resultFailed
	case len(r.Blocked) > 0:
		result = resultBlocked
	}
	m.passes.WithLabelValues(result).Inc()
	m.seconds.Observe(r.Took.Seconds())
	m.last.Set(float64(r.At.UnixMilli()) / 1e3)
	for _, c := range r.Changed {
		m.changes.WithLabelValues(c.Kind, string(c.Op)).Inc()
	}
	for kind, n := range r.Drift {
		m.drift.WithLabelValues(kind).Add(float64(n))
		m.driftTotal.Add(int64(n))
	}
	for kind, n := range r.Objects {
		m.objects.WithLabelValues(kind).Set(float64(n))
	}
	m.pending.WithLabelValues("blocked").Set(float64(len(r.Blocked)))
	m.pending.WithLabelValues("failed").Set(float64(len(r.Failed)))
	m.pending.WithLabelValues("fight").Set(float64(len(r.Fights)))
}

// DriftTotal returns the number of drift repairs since the start.
func (m *Metrics) DriftTotal() int { return int(m.driftTotal.Load()) }

// Query counts an answered DNS query.
func (m *Metrics) Query(q dns.Query) {
	m.queries.WithLabelValues(q.Transport, q.Type, q.Rcode).Inc()
}

// Replaced counts a tunnel process that exited or hung and was replaced.
func (m *Metrics) Replaced(link string) { m.replaced.WithLabelValues(link).Inc() }

// Moved counts a move of the path to another cluster.
func (m *Metrics) Moved(move status.Move) { m.moves.WithLabelValues(move.Cluster, move.Kind).Inc() }

// Refused counts a refused endpoint that a cluster announced.
func (m *Metrics) Refused(cluster string) { m.refused.WithLabelValues(cluster).Inc() }

// Handler returns the handler of scrapes. If a metric fails, it still serves the other metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, ErrorHandling: promhttp.ContinueOnError})
}
