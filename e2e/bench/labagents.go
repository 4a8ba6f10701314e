package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"hawser.dev/hawser/lab"
	"hawser.dev/hawser/nodeagent/status"
)

// labAgents holds the lab's nodes and queries their agents.
type labAgents struct {
	client *lab.Client
	nodes  map[string]lab.NodeStatus // by CLUSTER/NODE
	spaces map[string]string         // file of the network namespace by running node
}

// newLabAgents returns the nodes of a lab. All nodes must be up.
func (t *testbed) newLabAgents(ctx context.Context) (*labAgents, error) {
	f := &labAgents{client: lab.NewClient(lab.Layout{Dir: t.labDir()}), nodes: map[string]lab.NodeStatus{}, spaces: map[string]string{}}
	s, err := f.client.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range s.Nodes {
		id := n.Cluster + "/" + n.Name
		at, err := f.client.ExecAt(ctx, id)
		if err != nil {
			return nil, err
		}
		f.nodes[id], f.spaces[id] = n, at.Net
	}
	return f, nil
}

// ids returns the sorted nodes of some clusters.
func (f *labAgents) ids(clusters ...string) []string {
	var out []string
	for id, n := range f.nodes {
		if slices.Contains(clusters, n.Cluster) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// agentStatus returns the status of one agent.
func (f *labAgents) agentStatus(ctx context.Context, id string) (status.Status, error) {
	n := f.nodes[id]
	return n.QueryAgent(ctx)
}

// link is an active link between two clusters, by the nodes of its ends.
type link struct{ near, far string }

func (l link) String() string { return l.near + " - " + l.far }

// inUse returns the link between two clusters on which both ends agree.
func (f *labAgents) inUse(ctx context.Context, near, far string) (link, error) {
	nearLink, err := f.activeLink(ctx, near, far)
	if err != nil {
		return link{}, err
	}
	farLink, err := f.activeLink(ctx, far, near)
	if err != nil {
		return link{}, err
	}
	if nearLink != (link{farLink.far, farLink.near}) {
		return link{}, fmt.Errorf("%s uses %s and %s uses %s", near, nearLink, far, farLink)
	}
	return nearLink, nil
}

// activeLink returns the link that the gateways of one cluster use to another.
func (f *labAgents) activeLink(ctx context.Context, cluster, remote string) (link, error) {
	name := map[string]string{} // node by cluster/gateway
	var ids []string
	found := link{}
	for _, id := range f.ids(cluster, remote) {
		if !f.nodes[id].Gateway {
			continue
		}
		s, err := f.agentStatus(ctx, id)
		if err != nil {
			return link{}, fmt.Errorf("status of %s: %w", id, err)
		}
		name[s.Cluster+"/"+s.Gateway] = id
		ids = append(ids, id)
		for _, c := range s.Connections {
			if s.Cluster != cluster || c.RemoteCluster != remote || !c.Active {
				continue
			}
			if found != (link{}) {
				return link{}, fmt.Errorf("%s uses two links to %s", cluster, remote)
			}
			found = link{near: id, far: remote + "/" + c.RemoteGateway}
		}
	}
	if found == (link{}) {
		return found, fmt.Errorf("none of %v uses a link to %s", ids, remote)
	}
	found.far = name[found.far]
	return found, nil
}

// awaitRest waits until every node is ready and both ends use one link. It polls the nodes one
// after the other, and a ready node only once: polling must not load the measured machine.
func (f *labAgents) awaitRest(ctx context.Context, near, far string, limit time.Duration) (now link, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, id := range slices.Sorted(maps.Keys(f.nodes)) {
		if err := within(ctx, limit, func() error {
			s, err := f.agentStatus(ctx, id)
			if err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
			if !s.Ready {
				return fmt.Errorf("agent of %s is not ready", id)
			}
			for _, c := range s.Connections {
				if c.Status != status.Connected {
					return fmt.Errorf("%s: link to %s/%s is %s", id, c.RemoteCluster, c.RemoteGateway, c.Status)
				}
			}
			return nil
		}); err != nil {
			return now, err
		}
	}
	err = within(ctx, limit, func() (err error) { now, err = f.inUse(ctx, near, far); return err })
	return now, err
}
