package ui

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// missingField is the error for an absent field, which Grafana replaces by its default.
const missingField = "required field is missing from input"

// faults decodes a dashboard with Grafana's own types. It returns the number of panels and the
// unknown fields of panels, options and queries.
func faults(raw []byte) (panels int, found []string) {
	plugins.RegisterDefaultPlugins()
	var d dashboard.Dashboard
	if err := d.UnmarshalJSONStrict(raw); err != nil {
		for line := range strings.Lines(err.Error()) {
			if line = strings.TrimSpace(line); !strings.HasSuffix(line, missingField) {
				found = append(found, line)
			}
		}
	}
	if err := d.Validate(); err != nil {
		found = append(found, err.Error())
	}
	return len(d.Panels), found
}

// TestDashboard tests that Grafana's types know every field of the dashboard. They are generated
// from Grafana's schemas. They must detect a misspelt field or a wrong type at any level.
func TestDashboard(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "examples/monitoring/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	panels, found := faults(raw)
	if panels < 20 || len(found) > 0 {
		t.Errorf("%d panels; %s", panels, strings.Join(found, "\n"))
	}
	for name, edit := range map[string][2]string{
		"a field of the dashboard":   {`"templating":`, `"templatings":`},
		"a field of a panel":         {`"gridPos":`, `"gridpos":`},
		"an option of a panel":       {`"colorMode":`, `"colourMode":`},
		"a field of a query":         {`"legendFormat":`, `"legend_format":`},
		"a text instead of a number": {`"h": 4`, `"h": "4"`},
	} {
		text := strings.Replace(string(raw), edit[0], edit[1], 1)
		if text == string(raw) {
			t.Errorf("%s: nothing to misspell", name)
		} else if _, found := faults([]byte(text)); len(found) == 0 {
			t.Errorf("%s: not found", name)
		}
	}
}
