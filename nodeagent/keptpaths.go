package nodeagent

import (
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
