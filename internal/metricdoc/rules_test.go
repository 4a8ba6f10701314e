package metricdoc_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/internal/metricdoc"
)

const (
	document = "../../docs/metrics.md"
	alerts   = "../../docs/monitoring.md"
	examples = "../../examples/monitoring"
)

// rule is an alert of rules.yaml.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

// rules returns the alerts, and the directory with them in a file as Prometheus reads it.
func rules(t *testing.T) (list []rule, dir string) {
	t.Helper()
	var object struct {
		APIVersion, Kind string
		Metadata         map[string]any
		Spec             ruleFile
	}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(examples, "rules.yaml")), &object); err != nil {
		t.Fatal(err)
	}
	raw, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rules.yml"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, g := range object.Spec.Groups {
		list = append(list, g.Rules...)
	}
	if len(list) == 0 {
		t.Fatal("no alerts")
	}
	return list, dir
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestRules checks that promtool accepts the alerts, and that each fires only when it should.
func TestRules(t *testing.T) {
	t.Parallel()
	_, dir := rules(t)
	if err := os.WriteFile(filepath.Join(dir, "test.yml"), read(t, "testdata/rules_test.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	metricdoc.Promtool(t, dir, "", "check", "rules", "--lint=all", "--lint-fatal", "rules.yml")
	metricdoc.Promtool(t, dir, "", "test", "rules", "test.yml")
}

// TestRulesTested checks that a test makes each alert fire, and that one test expects no alert.
func TestRulesTested(t *testing.T) {
	t.Parallel()
	list, _ := rules(t)
	var file struct {
		Tests []struct {
			Name    string `json:"name"`
			Queries []struct {
				Expr    string   `json:"expr"`
				Samples []sample `json:"exp_samples"`
			} `json:"promql_expr_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal(read(t, "testdata/rules_test.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	fired, hasSilentTest := map[string]bool{}, false
	for _, test := range file.Tests {
		noAlert := true
		for _, e := range test.Queries {
			if e.Expr != `ALERTS{alertstate="firing"}` {
				t.Errorf("%s: queries %s instead of all alerts", test.Name, e.Expr)
			}
			for _, s := range e.Samples {
				noAlert = false
				fired[regexp.MustCompile(`alertname="([^"]+)"`).FindStringSubmatch(s.Labels)[1]] = true
			}
		}
		hasSilentTest = hasSilentTest || noAlert
	}
	if !hasSilentTest {
		t.Error("no test without a firing alert")
	}
	for _, r := range list {
		if !fired[r.Alert] {
			t.Errorf("no test makes %s fire", r.Alert)
		}
	}
}

type sample struct {
	Labels string `json:"labels"`
}

// TestRulesDocumented checks that each alert has a summary, a description and a runbook section,
// and that the document has no other alerts.
func TestRulesDocumented(t *testing.T) {
	t.Parallel()
	list, _ := rules(t)
	var headings []string
	for line := range strings.Lines(string(read(t, alerts))) {
		if name, is := strings.CutPrefix(strings.TrimSpace(line), "### Hawser"); is {
			headings = append(headings, "Hawser"+name)
		}
	}
	for _, r := range list {
		i := slices.Index(headings, r.Alert)
		if i < 0 {
			t.Errorf("%s has no paragraph in %s", r.Alert, alerts)
		} else {
			headings = slices.Delete(headings, i, i+1)
		}
		if want := "docs/monitoring.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
			t.Errorf("%s: runbook %q, want %q", r.Alert, r.Annotations["runbook"], want)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: %v", r.Alert, r.Annotations)
		}
		if !slices.Contains([]string{"critical", "warning"}, r.Labels["severity"]) || len(r.Labels) != 1 {
			t.Errorf("%s: labels %v", r.Alert, r.Labels)
		}
	}
	for _, gone := range headings {
		t.Errorf("%s is not an alert", gone)
	}
}

// TestNames checks that the document lists all metrics and labels in the rules and the dashboard.
func TestNames(t *testing.T) {
	t.Parallel()
	known := documentedLabels(t)
	list, _ := rules(t)
	queries := map[string][]string{} // expressions, and the texts that use labels of their results
	for _, r := range list {
		queries[r.Expr] = []string{r.Annotations["summary"], r.Annotations["description"]}
	}
	var dashboard any
	if err := json.Unmarshal(read(t, filepath.Join(examples, "dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	collectQueries(dashboard, queries)
	if len(queries) < len(list)+20 {
		t.Fatalf("%d expressions in %d alerts and the dashboard", len(queries), len(list))
	}
	for expr, texts := range queries {
		for _, wrong := range unknownNames(known, expr, texts) {
			t.Errorf("%s: %s", expr, wrong)
		}
	}
}

// TestUnknown checks that missing metrics and labels are found.
func TestUnknown(t *testing.T) {
	t.Parallel()
	known := documentedLabels(t)
	for expr, want := range map[string]int{
		`hawser_link_up{gateway="a"} == 0`:                                               0,
		`hawser_links_up == 0`:                                                           1,
		`max by (cluster, remote) (hawser_link_up)`:                                      1,
		`sum by (le) (rate(hawser_pass_seconds_bucket{kind="x"}[5m]))`:                   1,
		`hawser_ready == 0 unless on (cluster, gateway) hawser_drained{input!="a"} == 1`: 2,
		`label_values(hawser_agent_info, cluster)`:                                       0,
		`label_values(hawser_agent_info, digest)`:                                        1,
	} {
		if have := unknownNames(known, expr, nil); len(have) != want {
			t.Errorf("%s: %v", expr, have)
		}
	}
	if have := unknownNames(known, "hawser_ready", []string{"{{ $labels.node }} {{node}} {{ $labels.gateway }} {{input}} {{ $value | humanize }}"}); len(have) != 2 {
		t.Error(have)
	}
}
