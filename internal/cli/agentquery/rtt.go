package agentquery

import (
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

// AverageRTT formats the average round-trip time, empty if nothing was measured.
func AverageRTT(rtt *status.RTT) string {
	if rtt == nil {
		return ""
	}
	d := time.Duration(rtt.Avg) * time.Microsecond
	if d >= time.Millisecond {
		d = d.Round(100 * time.Microsecond)
	}
	return d.String()
}
