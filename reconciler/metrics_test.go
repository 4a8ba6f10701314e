package reconciler

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/metricdoc"
)

// fullMetrics returns metrics in which each metric has a series.
func fullMetrics() *metrics {
	m := newMetrics()
	m.setRevision("a", "b", "c")
	m.failures.WithLabelValues(string(ReasonInvalid)).Inc()
	m.webhooks.WithLabelValues("accepted").Inc()
	return m
}

// TestMetricsDocument checks that docs/metrics.md lists exactly the metrics of the reconciler.
func TestMetricsDocument(t *testing.T) {
	t.Parallel()
	want, err := metricdoc.Read("../docs/metrics.md", "The reconciler")
	if err != nil {
		t.Fatal(err)
	}
	have, err := metricdoc.Exposed(fullMetrics().registry)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("(-document +reconciler)\n%s", d)
	}
}

// TestCountersBegin checks that each reason and result has a series before the first event. It also
// checks that reasons lists each Reason in the code.
func TestCountersBegin(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	scrape := func() string {
		answer := httptest.NewRecorder()
		m.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return answer.Body.String()
	}
	raw, err := os.ReadFile("status.go")
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`Reason\w+ Reason = "([a-z-]+)"`).FindAllStringSubmatch(string(raw), -1)
	if len(known) < 11 {
		t.Fatalf("%d reasons in the code", len(known))
	}
	text := scrape()
	for _, reason := range known {
		if want := `hawser_reconciler_failures_total{reason="` + reason[1] + `"} 0`; !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	for _, want := range []string{`hawser_reconciler_webhooks_total{result="accepted"} 0`, `hawser_reconciler_webhooks_total{result="refused"} 0`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	m.failures.WithLabelValues(string(ReasonUntrusted)).Inc()
	if want := `hawser_reconciler_failures_total{reason="untrusted"} 1`; !strings.Contains(scrape(), want+"\n") {
		t.Errorf("no %s", want)
	}
}

// TestMetricsLint checks the scraped metrics with promtool.
func TestMetricsLint(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	fullMetrics().handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if out := metricdoc.Promtool(t, "", answer.Body.String(), "check", "metrics"); strings.Contains(out, "hawser_") {
		t.Error(out)
	}
}
