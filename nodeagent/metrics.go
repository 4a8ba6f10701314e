package nodeagent

import (
	"net/http"
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
	}
	m.registry.MustRegister(m.passes, m.seconds, m.changes, m.drift, m.objects, m.undone, m.queries, m.replaced,
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
	registry.MustRegister(&linkCollector{now: now})
	return registry
}

type linkCollector struct{ now func() status.Status }

func (c *linkCollector) describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"gateway", "remote_cluster", "remote_gateway"}, nil)
}

// Describe names the metrics of one link.
func (c *linkCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs() {
		out <- d
	}
}

func (c *linkCollector) descs() []*prometheus.Desc {
	return []*prometheus.Desc{
		c.describe("hawser_link_up", "1 while the link answers probes."),
		c.describe("hawser_link_chosen", "1 while the link carries the traffic of its pair of clusters."),
		c.describe("hawser_link_rtt_seconds", "Average round-trip time over the window of probes."),
		c.describe("hawser_link_loss_ratio", "Share of probes lost over the window, 0 to 1."),
		c.describe("hawser_link_receive_bytes_total", "Bytes received from the peer."),
		c.describe("hawser_link_transmit_bytes_total", "Bytes sent to the peer."),
	}
}

// Collect gives the values of every link.
func (c *linkCollector) Collect(out chan<- prometheus.Metric) {
	descs := c.descs()
	for _, l := range c.now().Connections {
		values := []float64{yes(l.Status == status.Connected), yes(l.Chosen), 0, l.Loss, float64(l.RxBytes), float64(l.TxBytes)}
		if l.RTT != nil {
			values[2] = float64(l.RTT.Avg) / 1e6
		}
		for i, d := range descs {
			kind := prometheus.GaugeValue
			if i >= 4 {
				kind = prometheus.CounterValue
			}
			out <- prometheus.MustNewConstMetric(d, kind, values[i], l.Gateway, l.RemoteCluster, l.RemoteGateway)
		}
	}
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
