package nodeagent

import (
	"context"
	"errors"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/flows"
)

// Plan gives what a pass would change in the kernel now. It needs the inputs, and changes nothing.
func (a *Agent) Plan(ctx context.Context) ([]converge.Change, error) {
	n, err := a.planned(ctx)
	if err != nil {
		return nil, err
	}
	// The DNS data lives in the running agent, so there is nothing to compare it with here.
	kernelOnly := converge.Engine[*node]{Stages: a.kernelStages(), Log: a.log, Decommission: a.engine.Decommission}
	return kernelOnly.Plan(ctx, n)
}

// Cleanup removes everything that carries Hawser's marks and restores sysctls.
func (a *Agent) Cleanup(ctx context.Context) (converge.Report, error) {
	report := a.engine.Once(ctx, &node{decommission: true}, "")
	held, err := flows.Release()
	for _, rule := range held {
		report.Changed = append(report.Changed, converge.Change{Kind: "rule", Op: diff.Delete, Key: rule})
	}
	return report, errors.Join(report.Err(), err)
}
