package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"time"

	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/project"
)

// keptPath is a link in use as the state folder holds it for the next start.
type keptPath struct {
	Local  string    `json:"local"`
	Remote string    `json:"remote"`
	Via    string    `json:"via,omitempty"`  // as in project.Path
	Over   string    `json:"over,omitempty"` // the clusters on the way
	Since  time.Time `json:"since"`
	Why    string    `json:"why"`
}

// kept gives the links in use, by remote cluster.
func (c *choice) kept() map[string]keptPath {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]keptPath, len(c.last))
	for remote, have := range c.last {
		out[remote] = keptPath{
			Local: have.Local, Remote: have.Remote, Via: have.Via, Over: have.over, Since: have.since, Why: have.Why,
		}
	}
	return out
}

// restore begins with the links of the run before, so that a restart moves nothing.
func (c *choice) restore(kept map[string]keptPath) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for remote, k := range kept {
		path := project.Path{Local: k.Local, Remote: k.Remote, Via: k.Via}
		c.last[remote] = chosen{Choice: health.Choice{Path: path, Why: k.Why}, since: k.Since, restored: true, over: k.Over}
		if k.Via == "" {
			c.links[remote] = c.last[remote]
		}
		c.had[remote+" "+sight{cluster: c.cluster}.name(remote, path)] = true
	}
}

// saver writes the links in use to the state folder when they changed. It has a
// goroutine of its own, as a disk may hang.
type saver struct {
	path string
	wake chan struct{} // size one
	last map[string]keptPath
}

func (s *saver) run(ctx context.Context, kept func() map[string]keptPath, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			s.save(kept(), log)
		}
	}
}

func (s *saver) save(kept map[string]keptPath, log *slog.Logger) {
	if maps.Equal(kept, s.last) {
		return
	}
	raw, err := json.Marshal(kept)
	if err == nil {
		err = writeAtomic(s.path, raw)
	}
	if err != nil {
		log.Debug("links in use not saved", "err", err)
		return
	}
	s.last = kept
}

// load gives what was saved; nothing when that cannot be read, as it only spares moves.
func (s *saver) load(log *slog.Logger) map[string]keptPath {
	raw, err := os.ReadFile(s.path)
	if err == nil {
		err = json.Unmarshal(raw, &s.last)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Warn("links of the run before not read", "err", err)
		s.last = nil
	}
	return s.last
}
