package render

import (
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
)

// Unsupported reports what a valid topology asks for and the data path does not
// have yet (code not-supported-yet).
func Unsupported(top *schema.ClusterSet) diag.List {
	if len(top.Spec.Keys.Epochs) <= 1 {
		return nil
	}
	return diag.List{{Severity: diag.Error, Code: "not-supported-yet", Path: "keys.epochs",
		Summary: "more than one key epoch is not supported yet",
		Hint:    "supported: one epoch at a time; changing it replaces all tunnel keys at once"}}
}
