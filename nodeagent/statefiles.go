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

// saveLiveInterval is the minimum time between two writes of the exports of other clusters, which
// change often.
const saveLiveInterval = 5 * time.Second

const (
	pathsFile      = "paths.json"
	shapeFile      = "shape.json"
	liveFile       = "heard.json"
	discoveredFile = "found.json"
)

// stateFiles are the files that rounds save for the next agent on this node.
type stateFiles struct {
	paths      *statefile.File[map[string]round.KeptPath]
	shape      *statefile.File[round.KeptShape]
	live       *statefile.File[round.KeptLive]
	discovered *statefile.File[map[string][]model.DiscoveredEndpoint]
}

func newStateFiles(dir string) stateFiles {
	return stateFiles{
		paths:      statefile.New[map[string]round.KeptPath](dir, pathsFile),
		shape:      statefile.New[round.KeptShape](dir, shapeFile),
		live:       statefile.New[round.KeptLive](dir, liveFile),
		discovered: statefile.New[map[string][]model.DiscoveredEndpoint](dir, discoveredFile),
	}
}

// load returns what the previous agent saved. A file that cannot be read is logged and counts
// as missing.
func (f stateFiles) load(log *slog.Logger) round.Saved {
	return round.Saved{Paths: f.paths.LoadOrZero(log), Shape: f.shape.LoadOrZero(log), Live: f.live.LoadOrZero(log), Found: f.discovered.LoadOrZero(log)}
}

// run saves each file after its Changed until ctx is done. A disk may hang, so each file has a
// goroutine of its own.
func (f stateFiles) run(ctx context.Context, state func() round.State, log *slog.Logger) {
	var wait sync.WaitGroup
	wait.Go(func() {
		f.paths.Run(ctx, 0, func() map[string]round.KeptPath { return state().KeptPaths() }, log)
	})
	wait.Go(func() { f.shape.Run(ctx, 0, func() round.KeptShape { return state().KeptShape() }, log) })
	wait.Go(func() {
		f.live.Run(ctx, saveLiveInterval, func() round.KeptLive { return state().KeptLive() }, log)
	})
	wait.Go(func() {
		f.discovered.Run(ctx, 0, func() map[string][]model.DiscoveredEndpoint { return state().KeptFound() }, log)
	})
	wait.Wait()
}
