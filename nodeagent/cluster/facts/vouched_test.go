package facts

import (
	"encoding/json"
	"testing"

	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// TestVouchedRecord checks that the addresses in the annotation count as confirmed only while the
// status has the same addresses. Only gateways write the status.
func TestVouchedRecord(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		addresses, ready string
		want             bool
	}{
		"as recorded":         {"242.1.0.5", "exported from cluster g1 at 242.1.0.5", true},
		"both families":       {"242.1.0.5,fd42::5", "exported from cluster g1 at fd42::5, 242.1.0.5", true},
		"changed":             {"242.1.0.6", "exported from cluster g1 at 242.1.0.5", false},
		"one more":            {"242.1.0.5,fd42::5", "exported from cluster g1 at 242.1.0.5", false},
		"no status yet":       {"242.1.0.5", "", false},
		"not exported yet":    {"242.1.0.5", "no address is recorded yet", false},
		"no record":           {"", "exported from cluster g1 at ", false},
		"pods, no digest":     {"db-0=242.1.0.5", "exported from cluster g1", false},
		"pods, as an address": {"db-0=242.1.0.5", "exported from cluster g1 at 242.1.0.5", false},
	} {
		raw, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"name": "web", "annotations": map[string]any{"hawser.dev/addresses": tt.addresses}},
			"status":   map[string]any{"conditions": []any{map[string]any{"type": "Ready", "message": tt.ready}, map[string]any{"type": "Valid", "message": "x at 242.1.0.6"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var e mcsv1.ServiceExport
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		if have := fromExport(&e).AddressesConfirmed; have != tt.want {
			t.Errorf("%s: vouched is %v", name, have)
		}
	}
}
