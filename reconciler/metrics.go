package reconciler

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics contains the metrics of a reconciler and their registry.
type metrics struct {
	registry    *prometheus.Registry
	revision    *prometheus.GaugeVec
	lastSuccess prometheus.Gauge
	failing     prometheus.Gauge
	failures    *prometheus.CounterVec
	publishes   prometheus.Counter
	passes      prometheus.Counter
	webhooks    *prometheus.CounterVec
	fetch       prometheus.Histogram
	render      prometheus.Histogram
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.revision = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hawser_reconciler_revision_info",
		Help: "Always 1; the labels name the published source commit, the commit on the publish branch and the digest of the fabric.",
	}, []string{"source", "published", "digest"})
	m.lastSuccess = gauge("last_success_timestamp_seconds", "Unix time of the last pass that published or found nothing to publish.")
	m.failing = gauge("failing", "1 while the last pass failed, otherwise 0.")
	m.failures = counters("failures_total", "Failed passes by reason.", "reason")
	m.publishes = counter("publishes_total", "Commits published.")
	m.passes = counter("passes_total", "Passes made.")
	m.webhooks = counters("webhooks_total", "Webhook requests by result.", "result")
	m.fetch = seconds("fetch_seconds", "Time to read the source and publish branches.")
	m.render = seconds("render_seconds", "Time from the topology's bytes to the rendered tree.")
	m.registry.MustRegister(m.revision, m.lastSuccess, m.failing, m.failures, m.publishes, m.passes, m.webhooks,
		m.fetch, m.render, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// Create all series with 0: increase() does not count the event that creates a series.
	for _, reason := range reasons() {
		m.failures.WithLabelValues(string(reason))
	}
	for _, result := range []string{webhookAccepted, webhookIgnored, webhookRefused} {
		m.webhooks.WithLabelValues(result)
	}
	return m
}

func metricName(suffix string) string { return "hawser_reconciler_" + suffix }

func gauge(suffix, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: metricName(suffix), Help: help})
}

func counter(suffix, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: metricName(suffix), Help: help})
}

func counters(suffix, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricName(suffix), Help: help}, []string{label})
}

func seconds(suffix, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: metricName(suffix), Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12),
	})
}

// setRevision sets the series of the published revision and removes the previous one.
func (m *metrics) setRevision(source, published, digest string) {
	m.revision.Reset()
	m.revision.WithLabelValues(source, published, digest).Set(1)
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}
