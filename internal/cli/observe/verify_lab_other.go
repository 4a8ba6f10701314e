//go:build !linux

package observe

import (
	"context"

	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/nodeagent/status"
)

// startLabPods returns errNoPods, because labs run on Linux only.
func startLabPods(context.Context, verifyFlags, []agentquery.Response[status.Verification], func(status.Verification) []string) (podRun, error) {
	return nil, errNoPods
}
