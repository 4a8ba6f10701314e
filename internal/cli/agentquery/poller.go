package agentquery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/reconciler"
)

const (
	silentAfter     = time.Second      // without an answer to a request
	podSilentAfter  = 3 * time.Second  // silentAfter of the first request to a pod
	podTimeout      = 10 * time.Second // for the response of an agent in a pod
	listInterval    = 3 * time.Second  // between two lists of a cluster's pods
	stateInterval   = 5 * time.Second  // between two reads of a cluster's state from its API
	slotTime        = time.Second      // how long a request occupies a slot
	requestsPerPoll = 32               // maximum number of concurrent requests to agents
)

// Poller polls the status of agents. Each agent gets a separate request with a deadline, so a
// silent agent does not delay the others. It is safe for concurrent use.
type Poller struct {
	// Targets returns the agents to query; nil = none.
	Targets func() Targets

	mu       sync.Mutex
	agents   map[string]*polledAgent // by socket, or cluster/pod
	clusters []*polledCluster        // nil for sockets
	opened   string                  // Targets.Text of the current clusters
	answered chan struct{}           // closed at the next response
	slots    chan struct{}
}

// polledAgent is one agent with its last response.
type polledAgent struct {
	name          string
	cluster, node string // if known without an answer
	fetch         func(context.Context) ([]byte, error)
	timeout       time.Duration
	silentAfter   time.Duration // until a request counts as unanswered

	busy      bool
	requested time.Time // start of the running request; zero while it waits for a slot
	last      *status.Status
	lastTime  time.Time
	err       error // of the last finished request
}

// polledCluster is a cluster whose agents run in pods.
type polledCluster struct {
	*kubeclient.Client
	requested time.Time // start of the last list
	listed    time.Time // end of the last successful list
	busy      bool
	err       error

	stateRequested time.Time // start of the last read of state
	readingState   bool
	state          *health.State // nil before the first read
}

// PolledReports are the responses that a Poller has.
type PolledReports struct {
	Agents []status.Status      // of agents that respond, sorted by cluster and node
	Silent []status.Unreachable // the other agents
	Old    []status.Status      // last reports of silent agents
	// Listed are the clusters whose pods are known.
	Listed []string
	// States are the states that the APIs of the clusters report. They are some seconds old.
	States []health.State
}

// Poll starts a request to every agent that has no running request. It returns when all agents have
// responded or count as silent, after one second at most.
func (p *Poller) Poll(ctx context.Context) (PolledReports, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.agents == nil {
		p.agents, p.answered, p.slots = map[string]*polledAgent{}, make(chan struct{}), make(chan struct{}, requestsPerPoll)
	}
	if err := p.discover(ctx); err != nil {
		return PolledReports{}, err
	}
	for _, a := range p.agents {
		p.request(ctx, a)
	}
	deadline := time.Now().Add(silentAfter + 50*time.Millisecond)
	for p.waiting(time.Now()) && time.Now().Before(deadline) && ctx.Err() == nil {
		answered := p.answered
		p.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-answered:
		case <-time.After(time.Until(deadline)):
		}
		p.mu.Lock()
		for _, a := range p.agents { // includes the agents of new pods
			if a.last == nil && a.err == nil {
				p.request(ctx, a)
			}
		}
	}
	return p.reports(time.Now()), nil
}

// discover updates the set of agents. The caller holds the lock.
func (p *Poller) discover(ctx context.Context) error {
	f := p.Targets()
	if len(f.Access.Contexts)+len(f.Access.Kubeconfigs)+len(f.Clusters)+len(f.File) == 0 {
		sockets, err := Sockets(f.Sockets, f.Lab)
		switch {
		case err == nil:
			p.setSockets(sockets)
			return nil
		case len(p.agents) > 0 && p.clusters == nil:
			p.setSockets(nil) // keep the agents that responded before
			return nil
		case len(f.Sockets)+len(f.Lab) > 0 || cli.IsMissing(reconciler.TopologyFile):
			return err
		}
		f.File = reconciler.TopologyFile
	}
	if key := fmt.Sprint(f.File, f.Clusters, f.Access); p.clusters == nil || key != p.opened {
		clients, err := f.Clients()
		if err != nil {
			return err
		}
		p.opened, p.clusters, p.agents = key, nil, map[string]*polledAgent{}
		for _, c := range clients {
			p.clusters = append(p.clusters, &polledCluster{Client: c})
		}
	}
	for _, c := range p.clusters {
		if !c.busy && time.Since(c.requested) >= listInterval {
			c.busy, c.requested = true, time.Now()
			go p.list(ctx, c)
		}
		if !c.readingState && time.Since(c.stateRequested) >= stateInterval {
			c.readingState, c.stateRequested = true, time.Now()
			go p.readState(ctx, c)
		}
	}
	return nil
}

// setSockets sets the agents of this machine. It keeps a vanished socket while the directory
// exists, because then its agent stopped. The caller holds the lock.
func (p *Poller) setSockets(sockets []string) {
	for _, socket := range sockets {
		if p.agents[socket] == nil {
			p.agents[socket] = &polledAgent{name: socket, node: labNode(socket), timeout: agentTimeout, silentAfter: silentAfter,
				fetch: func(ctx context.Context) ([]byte, error) { return Fetch(ctx, socket, StatusRequest().Path) }}
		}
	}
	maps.DeleteFunc(p.agents, func(socket string, _ *polledAgent) bool {
		_, err := os.Stat(filepath.Dir(socket))
		return !slices.Contains(sockets, socket) && err != nil
	})
}

// labNode returns the node of a socket in a lab's directory; otherwise empty.
func labNode(socket string) string {
	dir := filepath.Dir(filepath.Dir(socket))
	if filepath.Base(filepath.Dir(dir)) != "nodes" {
		return ""
	}
	return filepath.Base(dir)
}

// list lists the pods of a cluster.
func (p *Poller) list(ctx context.Context, c *polledCluster) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	pods, err := c.RunningAgents(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.notify()
	c.busy, c.err = false, err
	if err != nil {
		return // keep the known agents
	}
	c.listed = time.Now()
	found := map[string]bool{}
	for i := range pods {
		pod, key := pods[i].GetName(), c.Name+"/"+pods[i].GetName()
		found[key] = true
		if p.agents[key] == nil {
			node, _, _ := unstructured.NestedString(pods[i].Object, "spec", "nodeName")
			p.agents[key] = &polledAgent{name: key, cluster: c.Name, node: node, timeout: podTimeout, silentAfter: podSilentAfter,
				fetch: func(ctx context.Context) ([]byte, error) { return c.ExecAgent(ctx, pod, StatusRequest().Args) }}
		}
	}
	maps.DeleteFunc(p.agents, func(key string, a *polledAgent) bool { return a.cluster == c.Name && !found[key] })
}

// readState reads a cluster's state from its API.
func (p *Poller) readState(ctx context.Context, c *polledCluster) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	state := clusterstatus.Read(ctx, c.Client)
	p.mu.Lock()
	defer p.mu.Unlock()
	c.readingState, c.state = false, &state
}

// notify ends the wait of Poll. The caller holds the lock.
func (p *Poller) notify() {
	close(p.answered)
	p.answered = make(chan struct{})
}

// request starts a request to an agent unless one is running. The caller holds the lock.
func (p *Poller) request(ctx context.Context, a *polledAgent) {
	if a.busy {
		return
	}
	a.busy = true
	go func() {
		// Slots bound the load on this machine and on the API servers. A silent agent
		// occupies its slot for slotTime at most.
		p.slots <- struct{}{}
		slot := time.AfterFunc(slotTime, func() { <-p.slots })
		startedAt := time.Now()
		p.mu.Lock()
		a.requested = startedAt
		p.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, a.timeout)
		raw, err := a.fetch(ctx)
		cancel()
		if slot.Stop() {
			<-p.slots
		}
		var s status.Status
		if err == nil {
			if err = json.Unmarshal(raw, &s); err != nil {
				err = fmt.Errorf("read the agent's answer: %w", err)
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		defer p.notify()
		a.busy, a.requested, a.err = false, time.Time{}, err
		if err == nil {
			a.last, a.lastTime = &s, time.Now()
			a.silentAfter = max(silentAfter, 2*time.Since(startedAt))
		}
	}()
}

// silent reports whether an agent does not respond. The caller holds the lock.
func (a *polledAgent) silent(now time.Time) bool {
	return a.err != nil || !a.requested.IsZero() && now.Sub(a.requested) >= a.silentAfter
}

// waiting reports whether an agent may respond soon, or the first list of a cluster is running. The
// caller holds the lock.
func (p *Poller) waiting(now time.Time) bool {
	for _, a := range p.agents {
		if a.busy && !a.silent(now) {
			return true
		}
	}
	return slices.ContainsFunc(p.clusters, func(c *polledCluster) bool { return c.busy && c.listed.IsZero() && c.err == nil })
}

// reports returns the current reports. The caller holds the lock.
func (p *Poller) reports(now time.Time) PolledReports {
	var out PolledReports
	for _, c := range p.clusters {
		if !c.listed.IsZero() {
			out.Listed = append(out.Listed, c.Name)
		}
		if c.state != nil {
			out.States = append(out.States, *c.state)
		}
		if c.err != nil {
			u := status.Unreachable{Agent: c.Name, Cluster: c.Name, Error: kubeclient.ErrorText(c.err)}
			if at := c.listed; !at.IsZero() {
				u.LastAnswer = &at
			}
			out.Silent = append(out.Silent, u)
		}
	}
	for _, a := range p.agents {
		if !a.silent(now) {
			if a.last != nil {
				out.Agents = append(out.Agents, *a.last)
			}
			continue
		}
		u := status.Unreachable{Agent: a.name, Cluster: a.cluster, Node: a.node}
		if a.last != nil {
			at := a.lastTime
			u.Cluster, u.Node, u.LastAnswer = a.last.Cluster, a.last.Node, &at
			out.Old = append(out.Old, *a.last)
		}
		switch {
		case errors.Is(a.err, syscall.ECONNREFUSED) || errors.Is(a.err, syscall.ENOENT):
			u.Error = "no agent listens at " + a.name
		case a.err != nil && !errors.Is(a.err, context.DeadlineExceeded):
			u.Error = kubeclient.ErrorText(a.err)
		default:
			u.Error = fmt.Sprintf("no answer within %.0f s", max(1, a.silentAfter.Seconds()))
		}
		out.Silent = append(out.Silent, u)
	}
	Sort(out.Agents)
	Sort(out.Old)
	slices.SortFunc(out.Silent, func(a, b status.Unreachable) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Agent, b.Agent))
	})
	return out
}
