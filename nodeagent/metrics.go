package nodeagent

import (
	"math"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/dns"
	"hawser.dev/hawser/nodeagent/status"
)

// metrics are the agent's own; the registry is not shared with anything.
type metrics struct {
	registry *prometheus.Registry
	passes   *prometheus.CounterVec
	seconds  prometheus.Histogram
	changes  *prometheus.CounterVec
	drift    *prometheus.CounterVec
	objects  *prometheus.GaugeVec
	undone   *prometheus.GaugeVec
	queries  *prometheus.CounterVec
	replaced *prometheus.CounterVec
	moves    *prometheus.CounterVec

	driftTotal atomic.Int64
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hawser_passes_total", Help: "Converge rounds by result: clean, blocked or failed."}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "hawser_pass_seconds", Help: "Time of a converge round.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hawser_changes_total", Help: "Changes made, by kind and operation."}, []string{"kind", "op"}),
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hawser_drift_total", Help: "Changes that repaired what somebody else had changed, by kind."}, []string{"kind"}),
		objects: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hawser_objects", Help: "Objects of ours, by kind."}, []string{"kind"}),
		undone: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hawser_undone", Help: "Changes that the last round left: blocked, failed or fought over."}, []string{"state"}),
		queries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hawser_dns_queries_total", Help: "Answered queries."}, []string{"transport", "type", "rcode"}),
		replaced: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hawser_tunnel_replaced_total", Help: "Tunnel processes that ended or hung, and were replaced, by device."}, []string{"link"}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hawser_moves_total", Help: "Moves of the link to another cluster, by cluster and kind of cause."},
			[]string{"cluster", "cause"}),
	}
	m.registry.MustRegister(m.passes, m.seconds, m.changes, m.drift, m.objects, m.undone, m.queries, m.replaced, m.moves,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) count(r converge.Report) {
	result := "clean"
	switch {
	case len(r.Failed) > 0:
		result = "failed"
	case len(r.Blocked) > 0:
		result = "blocked"
	}
	m.passes.WithLabelValues(result).Inc()
	m.seconds.Observe(r.Took.Seconds())
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
	m.undone.WithLabelValues("blocked").Set(float64(len(r.Blocked)))
	m.undone.WithLabelValues("failed").Set(float64(len(r.Failed)))
	m.undone.WithLabelValues("fight").Set(float64(len(r.Fights)))
}

// driftSoFar is the number of drift repairs since the start.
func (m *metrics) driftSoFar() int { return int(m.driftTotal.Load()) }

func (m *metrics) query(q dns.Query) {
	m.queries.WithLabelValues(q.Transport, q.Type, q.Rcode).Inc()
}

// handler serves the registry and, from the status given at that moment, one
// set of values a link.
func (m *metrics) handler(now func() status.Status) http.Handler {
	own := promhttp.HandlerFor(prometheus.Gatherers{m.registry, linkGatherer(now)}, promhttp.HandlerOpts{})
	return own
}

// linkGatherer turns the connections of a status into metrics.
func linkGatherer(now func() status.Status) prometheus.Gatherer {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&linkCollector{now: now, metrics: linkMetrics()})
	return registry
}

type linkCollector struct {
	now     func() status.Status
	metrics []linkMetric
}

// linkMetric is one value of a link.
type linkMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(status.Connection) float64
}

func linkMetrics() []linkMetric {
	var out []linkMetric
	add := func(kind prometheus.ValueType, name, help string, value func(status.Connection) float64) {
		desc := prometheus.NewDesc(name, help, []string{"gateway", "remote_cluster", "remote_gateway"}, nil)
		out = append(out, linkMetric{desc, kind, value})
	}
	gauge := func(name, help string, value func(status.Connection) float64) {
		add(prometheus.GaugeValue, name, help, value)
	}
	trip := func(name, help string, micros func(*status.RTT) int64) {
		gauge(name, help, func(c status.Connection) float64 {
			if c.RTT == nil {
				return math.NaN()
			}
			return float64(micros(c.RTT)) / 1e6
		})
	}
	gauge("hawser_link_up", "1 while the link answers probes.",
		func(c status.Connection) float64 { return yes(c.Status == status.Connected) })
	gauge("hawser_link_chosen", "1 while the link carries the traffic of its pair of clusters.",
		func(c status.Connection) float64 { return yes(c.Chosen) })
	gauge("hawser_link_rank", "How fit the link is: 0 down, 1 alone, 2 draining, 3 unsteady, 4 good.",
		func(c status.Connection) float64 { return float64(slices.Index(status.Ranks(), c.Rank)) })
	trip("hawser_link_rtt_seconds", "Average round-trip time over the window of probes.", func(r *status.RTT) int64 { return r.Avg })
	trip("hawser_link_rtt_min_seconds", "Least round-trip time over the window.", func(r *status.RTT) int64 { return r.Min })
	trip("hawser_link_rtt_max_seconds", "Greatest round-trip time over the window.", func(r *status.RTT) int64 { return r.Max })
	trip("hawser_link_rtt_stddev_seconds", "Standard deviation of the round-trip time over the window.",
		func(r *status.RTT) int64 { return r.StdDev })
	gauge("hawser_link_loss_ratio", "Share of probes lost over the window, 0 to 1.", func(c status.Connection) float64 { return c.Loss })
	gauge("hawser_link_since_seconds", "Time since when the link is up or down, in seconds since 1970.",
		func(c status.Connection) float64 { return float64(c.Since.UnixMilli()) / 1e3 })
	gauge("hawser_link_mtu_bytes", "Bytes that a packet inside the tunnel may have.",
		func(c status.Connection) float64 { return float64(c.MTU) })
	add(prometheus.CounterValue, "hawser_link_receive_bytes_total", "Bytes received from the peer.",
		func(c status.Connection) float64 { return float64(c.RxBytes) })
	add(prometheus.CounterValue, "hawser_link_transmit_bytes_total", "Bytes sent to the peer.",
		func(c status.Connection) float64 { return float64(c.TxBytes) })
	return out
}

// Describe names the metrics of one link.
func (c *linkCollector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		out <- m.desc
	}
}

// Collect gives the values of every link.
func (c *linkCollector) Collect(out chan<- prometheus.Metric) {
	for _, l := range c.now().Connections {
		for _, m := range c.metrics {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(l), l.Gateway, l.RemoteCluster, l.RemoteGateway)
		}
	}
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
