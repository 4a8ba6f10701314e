package nodeagent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/nodeagent/project"
)

const factsFile = "facts.json"

// factsCopy is the last good copy of the facts, on disk.
type factsCopy struct {
	path string

	mu     sync.Mutex
	failed error // of the last save
}

// load gives the copy; nil = there is none that can be used.
func (c *factsCopy) load() *project.Facts {
	raw, err := os.ReadFile(c.path)
	if err != nil {
		return nil
	}
	var out project.Facts
	if json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return &out
}

// save replaces the copy unless it holds these facts already.
func (c *factsCopy) save(facts project.Facts) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = nil
	raw, err := json.Marshal(facts)
	if err != nil {
		c.failed = fmt.Errorf("save facts: %w", err)
		return c.failed
	}
	if have, err := os.ReadFile(c.path); err == nil && bytes.Equal(have, raw) {
		return nil
	}
	c.failed = atomicfile.Write(c.path, raw, 0o600)
	return c.failed
}

// trouble gives how the last save ended.
func (c *factsCopy) trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// keepFacts saves what the API says: at once, and then again after a pause.
func (in *inputs) keepFacts(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-in.unsaved:
		}
		if state := in.api.Current(); state.Loaded {
			if err := in.copy.save(state.Facts); err != nil {
				in.log.Warn("facts not saved", "err", err)
				in.refresh(ctx) // so that status says so
				in.unsaved.Ring()
			}
		}
		pause(ctx, saveRetry)
	}
}
