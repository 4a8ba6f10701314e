//go:build linux

package observe

import (
	"context"
	"encoding/json"
	"errors"

	"hawser.dev/hawser/lab"
)

// lab collects from the lab in a directory. It returns the lab's nodes by directory.
func (g *collector) lab(ctx context.Context, dir string) map[string]labNode {
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	nodes := map[string]labNode{}
	s, err := lab.NewClient(lab.Layout{Dir: dir}).Status(ctx)
	if errors.Is(err, lab.ErrNoLab) {
		return nodes // a directory with nodes but without a lab
	}
	if err != nil {
		g.put("lab/status.json", nil, err)
		return nodes
	}
	text, err := json.Marshal(s)
	g.put("lab/status.json", text, err)
	g.file("lab/reconciler.log", s.Reconciler.Log)
	for _, text := range s.Waiting {
		g.addNote("lab: %s", text)
	}
	if s.Repo != "" {
		g.topology = s.Repo
	}
	for _, n := range s.Nodes {
		nodes[n.Dir] = labNode{cluster: n.Cluster, name: n.Name}
	}
	return nodes
}
