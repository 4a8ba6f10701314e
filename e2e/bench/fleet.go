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

// labAgents is the lab's nodes and what their agents say.
type labAgents struct {
	client *lab.Client
	nodes  map[string]lab.NodeStatus // by CLUSTER/NODE
	spaces map[string]string         // of the nodes that run: file of the namespace
}

// newFleet looks at a lab whose nodes are all up.
func (t *testbed) newFleet(ctx context.Context) (*labAgents, error) {
	f := &labAgents{client: lab.NewClient(lab.Layout{Dir: t.labDir()}), nodes: map[string]lab.NodeStatus{}, spaces: map[string]string{}}
	s, err := f.client.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range s.Nodes {
		id := n.Cluster + "/" + n.Name
		at, err := f.client.Place(ctx, id)
		if err != nil {
			return nil, err
		}
		f.nodes[id], f.spaces[id] = n, at.Net
	}
	return f, nil
}

// ids gives the nodes of some clusters in order.
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

// ask gives the status of one agent.
func (f *labAgents) ask(ctx context.Context, id string) (status.Status, error) {
	n := f.nodes[id]
	return n.AskAgent(ctx)
}

// link is one that carries the traffic between two clusters, by the nodes of its
// ends.
type link struct{ near, far string }

func (l link) String() string { return l.near + " - " + l.far }

// inUse gives the link between two clusters that the gateways of both ends agree on.
func (f *labAgents) inUse(ctx context.Context, near, far string) (link, error) {
	here, err := f.chosen(ctx, near, far)
	if err != nil {
		return link{}, err
	}
	there, err := f.chosen(ctx, far, near)
	if err != nil {
		return link{}, err
	}
	if here != (link{there.far, there.near}) {
		return link{}, fmt.Errorf("%s uses %s and %s uses %s", near, here, far, there)
	}
	return here, nil
}

// chosen gives the link that the gateways of one cluster use to another.
func (f *labAgents) chosen(ctx context.Context, cluster, remote string) (link, error) {
	name := map[string]string{} // node by cluster/gateway
	var ids []string
	found := link{}
	for _, id := range f.ids(cluster, remote) {
		if !f.nodes[id].Gateway {
			continue
		}
		s, err := f.ask(ctx, id)
		if err != nil {
			return link{}, fmt.Errorf("ask %s: %w", id, err)
		}
		name[s.Cluster+"/"+s.Gateway] = id
		ids = append(ids, id)
		for _, c := range s.Connections {
			if s.Cluster != cluster || c.RemoteCluster != remote || !c.Chosen {
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

// awaitRest returns when every node is steady and both ends use one link. The
// nodes are looked at one after the other, and none again that was in order, so
// that waiting costs little of the machine that is measured.
func (f *labAgents) awaitRest(ctx context.Context, near, far string, limit time.Duration) (now link, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, id := range slices.Sorted(maps.Keys(f.nodes)) {
		if err := within(ctx, limit, func() error {
			s, err := f.ask(ctx, id)
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
