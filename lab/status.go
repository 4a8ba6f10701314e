package lab

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
)

// Status is the current status of a lab.
type Status struct {
	Dir         string           `json:"dir"`
	Repo        string           `json:"repo"`
	Ready       bool             `json:"ready"`
	Waiting     []string         `json:"waiting,omitempty"` // components that are not ready, and why
	Published   string           `json:"published,omitempty"`
	Source      string           `json:"source,omitempty"` // commit of the applied topology
	Digest      string           `json:"digest,omitempty"` // digest of the applied fabric
	Reconciler  ReconcilerStatus `json:"reconciler"`
	Nodes       []NodeStatus     `json:"nodes"`
	Pods        []PodStatus      `json:"pods"`
	Services    []ServiceStatus  `json:"services,omitempty"`
	SyncStopped []string         `json:"syncStopped,omitempty"` // clusters whose sync is stopped
}

// ReconcilerStatus is the status of the lab's reconciler.
type ReconcilerStatus struct {
	PID         int       `json:"pid,omitempty"`
	Restarts    int       `json:"restarts,omitempty"`
	Applied     string    `json:"applied,omitempty"` // newest applied commit
	Latest      string    `json:"latest,omitempty"`  // the newest commit
	Error       string    `json:"error,omitempty"`
	Refused     bool      `json:"refused,omitempty"` // the commit is invalid: a retry would not help
	Diagnostics diag.List `json:"diagnostics,omitempty"`
	Log         string    `json:"log"`
}

// NodeStatus is the status of a node and its agent.
type NodeStatus struct {
	Cluster  string   `json:"cluster"`
	Name     string   `json:"name"`
	Gateway  bool     `json:"gateway"`
	State    string   `json:"state"` // up | off | starting
	LAN      []string `json:"lan"`
	WAN      []string `json:"wan,omitempty"`
	PodCIDRs []string `json:"podCIDRs"`
	Faults   []string `json:"faults,omitempty"`
	Agent    Agent    `json:"agent"`
	Dir      string   `json:"dir"` // fabric, keys, facts, state, run/agent.sock, agent.log
	// Links are the names of the node's ends in the underlay (wan, lan), for packet captures.
	Links map[string]string `json:"links"`
	net   string
}

// Agent is the status of a node's agent.
type Agent struct {
	PID      int    `json:"pid,omitempty"` // 0 = it does not run
	Stopped  bool   `json:"stopped,omitempty"`
	Restarts int    `json:"restarts,omitempty"`
	Ready    bool   `json:"ready"`
	Digest   string `json:"digest,omitempty"`  // digest of the fabric that it applied
	Problem  string `json:"problem,omitempty"` // why it is not ready
	// MissingFeeds lists the clusters with exports whose feed has not arrived. The agent does
	// not have the addresses of their pods yet.
	MissingFeeds []string `json:"missingFeeds,omitempty"`
}

// PodStatus is the status of a pod.
type PodStatus struct {
	Cluster   string   `json:"cluster"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Node      string   `json:"node"`
	IP        string   `json:"ip"`
	IPs       []string `json:"ips"`
	Ready     bool     `json:"ready"`
	Running   bool     `json:"running"`
	Owner     string   `json:"owner,omitempty"`
}

// ServiceStatus is the status of a service.
type ServiceStatus struct {
	Cluster    string   `json:"cluster"`
	Namespace  string   `json:"namespace"`
	Name       string   `json:"name"`
	ClusterIPs []string `json:"clusterIPs,omitempty"` // none for a headless service
	Endpoints  int      `json:"endpoints"`
	Ready      int      `json:"ready"`
}

// status returns the status of the lab. It queries the programs without the lock.
func (d *daemon) status(ctx context.Context) Status {
	out := d.snapshot()
	var group sync.WaitGroup
	group.Go(func() { d.queryReconciler(ctx, &out.Reconciler) })
	for i := range out.Nodes {
		n := &out.Nodes[i]
		if n.Agent.PID != 0 {
			group.Go(func() { queryAgent(ctx, n) })
		}
	}
	group.Wait()
	out.Waiting = append(out.Waiting, d.waiting(&out)...)
	out.Ready = len(out.Waiting) == 0
	return out
}

func (d *daemon) snapshot() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := Status{
		Dir: d.layout.Dir, Repo: d.layout.Repo(), Nodes: []NodeStatus{}, Pods: []PodStatus{},
		Published: d.published.commit, Source: d.published.source, Digest: d.published.digest,
		Reconciler: ReconcilerStatus{Log: d.layout.reconcilerLog()},
	}
	if d.lastErr != nil {
		out.Waiting = append(out.Waiting, d.lastErr.Error())
	}
	if d.reconciler != nil {
		process, restarts, end := d.reconciler.state()
		out.Reconciler.PID, out.Reconciler.Restarts, out.Reconciler.Error = process.PID, restarts, end
	}
	for _, c := range d.topology.clusters {
		if d.state.SyncStopped[c.name] {
			out.SyncStopped = append(out.SyncStopped, c.name)
		}
	}
	if d.world == nil {
		return out
	}
	out.Waiting = append(out.Waiting, d.world.problems...)
	for i := range d.world.nodes {
		out.Nodes = append(out.Nodes, d.nodeStatus(&d.world.nodes[i]))
	}
	for _, p := range d.world.pods() {
		s := PodStatus{
			Cluster: p.cluster, Namespace: p.Namespace, Name: p.Name, Node: p.node, IPs: humanize.Strings(p.addrs), Owner: p.Owner,
		}
		if len(s.IPs) > 0 {
			s.IP = s.IPs[0]
		}
		if m := d.nodes[p.cluster+"/"+p.node]; m != nil {
			s.Running = m.pods[p.id()] != nil
		}
		s.Ready = p.ready && s.Running
		out.Pods = append(out.Pods, s)
	}
	for _, c := range d.world.clusters {
		for _, svc := range c.services {
			s := ServiceStatus{Cluster: c.name, Namespace: svc.Namespace, Name: svc.Name, ClusterIPs: humanize.Strings(svc.addrs), Endpoints: len(svc.backends)}
			for _, b := range svc.backends {
				if b.ready {
					s.Ready++
				}
			}
			out.Services = append(out.Services, s)
		}
	}
	return out
}

func (d *daemon) nodeStatus(n *node) NodeStatus {
	out := NodeStatus{
		Cluster: n.cluster, Name: n.name, Gateway: n.gateway, State: "starting", Dir: d.nodeDir(n),
		LAN: humanize.Strings(n.lan), WAN: humanize.Strings(n.wan), PodCIDRs: humanize.Strings(n.podCIDRs),
		Agent: Agent{Stopped: d.state.Stopped[n.id()]},
	}
	for _, side := range []string{SideWAN, SideLAN} {
		out.Faults = append(out.Faults, d.state.Links[n.id()+"/"+side].texts(side)...)
	}
	out.Links = map[string]string{SideLAN: port(n, SideLAN)}
	if n.hasWAN {
		out.Links[SideWAN] = port(n, SideWAN)
	}
	if d.state.Lost[n.id()] {
		out.Faults = append(out.Faults, "tunnels lost")
	}
	m := d.nodes[n.id()]
	switch {
	case d.state.Off[n.id()]:
		out.State = "off"
	case m != nil:
		out.State, out.net = "up", m.ns.path
		if m.agent != nil {
			process, restarts, end := m.agent.state()
			out.Agent.PID, out.Agent.Restarts, out.Agent.Problem = process.PID, restarts, end
			if process.Frozen() {
				out.Faults = append(out.Faults, "agent frozen")
			}
		}
		if m.frozen {
			out.Faults = append(out.Faults, "tunnels frozen")
		}
	}
	return out
}

// waiting returns the components that are not ready.
func (d *daemon) waiting(s *Status) []string {
	var out []string
	for _, p := range s.Pods {
		off := slices.ContainsFunc(s.Nodes, func(n NodeStatus) bool {
			return n.Cluster == p.Cluster && n.Name == p.Node && n.State == "off"
		})
		if !p.Running && !off {
			out = append(out, fmt.Sprintf("pod %s/%s/%s does not run", p.Cluster, p.Namespace, p.Name))
		}
	}
	if d.config.NoHawser {
		return out
	}
	if s.Published == "" {
		reason := s.Reconciler.Error
		if reason == "" {
			reason = "the first pass has not ended"
		}
		return append(out, fmt.Sprintf("reconciler: nothing is published: %s (%s)", reason, s.Reconciler.Log))
	}
	for _, n := range s.Nodes {
		id := n.Cluster + "/" + n.Name
		switch {
		case n.State == "off" || n.Agent.Stopped:
		case !n.Agent.Ready:
			out = append(out, fmt.Sprintf("agent of %s: %s (hawser lab logs %s)", id, cmp.Or(n.Agent.Problem, "not ready"), id))
		case n.Agent.Digest != s.Digest && s.Digest != "" && !slices.Contains(s.SyncStopped, n.Cluster):
			out = append(out, fmt.Sprintf("agent of %s: has fabric %s, published is %s", id, n.Agent.Digest, s.Digest))
		}
	}
	return out
}

// lacksFeeds reports whether a running agent waits for another cluster's feed.
func (s *Status) lacksFeeds() bool {
	return slices.ContainsFunc(s.Nodes, func(n NodeStatus) bool { return len(n.Agent.MissingFeeds) > 0 })
}
