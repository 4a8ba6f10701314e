package reconciler

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/metricdoc"
)

// everyMetric are the metrics of a reconciler to which everything has happened once.
func everyMetric() *metrics {
	m := newMetrics()
	m.inForce("a", "b", "c")
	m.failures.WithLabelValues(string(ReasonInvalid)).Inc()
	m.webhooks.WithLabelValues("accepted").Inc()
	return m
}

// TestMetricsDocument: docs/metrics.md lists what the reconciler exposes, and nothing else.
func TestMetricsDocument(t *testing.T) {
	t.Parallel()
	want, err := metricdoc.Read("../docs/metrics.md", "The reconciler")
	if err != nil {
		t.Fatal(err)
	}
	have, err := metricdoc.Exposed(everyMetric().registry)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("(-document +reconciler)\n%s", d)
	}
}

// TestMetricsLint: promtool finds nothing in what a scrape gives.
func TestMetricsLint(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	everyMetric().handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if out := metricdoc.Promtool(t, "", answer.Body.String(), "check", "metrics"); strings.Contains(out, "hawser_") {
		t.Error(out)
	}
}
