package pagedata

import (
	"cmp"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/view/ui"
)

// Findings converts findings of the validation for the page.
func Findings(list diag.List) []ui.Finding {
	var out []ui.Finding
	for _, d := range list {
		d = d.Clipped()
		out = append(out, ui.Finding{By: "validate", Severity: string(d.Severity), Position: cmp.Or(d.Pos.String(), d.Path), Text: d.Summary, Hint: d.Hint})
	}
	return out
}
