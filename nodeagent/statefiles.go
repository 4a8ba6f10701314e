package nodeagent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"hawser.dev/hawser/internal/statefile"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/round"
)

// saveRemoteExportsInterval is the minimum time between two writes of the exports of other clusters, which
// change often.
const saveRemoteExportsInterval = 5 * time.Second

const (
	pathsFile               = "paths.json"
	shapeFile               = "shape.json"
	remoteExportsFile       = "remote-exports.json"
	discoveredEndpointsFile = "discovered-endpoints.json"
)

// stateFiles are the files that rounds save for the next agent on this node.
type stateFiles struct {
	paths         *statefile.File[map[string]round.SavedPath]
	shape         *statefile.File[round.SavedShape]
	remoteExports *statefile.File[round.SavedClusterStates]
	discovered    *statefile.File[map[string][]model.DiscoveredEndpoint]
}

func newStateFiles(dir string) stateFiles {
	return stateFiles{
		paths:         statefile.New[map[string]round.SavedPath](dir, pathsFile),
		shape:         statefile.New[round.SavedShape](dir, shapeFile),
		remoteExports: statefile.New[round.SavedClusterStates](dir, remoteExportsFile),
		discovered:    statefile.New[map[string][]model.DiscoveredEndpoint](dir, discoveredEndpointsFile),
	}
}

// load returns the state saved by the previous agent. An unreadable file is logged and counts
// as missing.
func (f stateFiles) load(log *slog.Logger) round.Saved {
	return round.Saved{Paths: f.paths.LoadOrZero(log), Shape: f.shape.LoadOrZero(log), ClusterStates: f.remoteExports.LoadOrZero(log), Endpoints: f.discovered.LoadOrZero(log)}
}

// run saves each file after its MarkDirty until ctx is done. A disk may hang, so each file has a
// goroutine of its own.
func (f stateFiles) run(ctx context.Context, state func() round.State, log *slog.Logger) {
	var wait sync.WaitGroup
	wait.Go(func() {
		f.paths.Run(ctx, 0, func() map[string]round.SavedPath { return state().SavedPaths() }, log)
	})
	wait.Go(func() { f.shape.Run(ctx, 0, func() round.SavedShape { return state().SavedShape() }, log) })
	wait.Go(func() {
		f.remoteExports.Run(ctx, saveRemoteExportsInterval, func() round.SavedClusterStates { return state().SavedClusterStates() }, log)
	})
	wait.Go(func() {
		f.discovered.Run(ctx, 0, func() map[string][]model.DiscoveredEndpoint { return state().SavedEndpoints() }, log)
	})
	wait.Wait()
}
