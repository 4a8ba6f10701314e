// Package agentquery sends requests to agents, at sockets of this machine or in their pods.
package agentquery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/unixsocket"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/nodeagent/status"
)

const (
	HostSocket          = "/run/hawser/agent.sock" // of the agent on this host
	agentTimeout        = 3 * time.Second          // for one agent's response
	postTimeout         = 15 * time.Second         // for a request that changes something
	maxConcurrentAgents = 16
	maxStatus           = 64 << 20
)

// Sockets returns the named sockets. Without names it returns the sockets of the lab, or else the
// socket of this host.
func Sockets(named []string, labDir string) ([]string, error) {
	if len(named) > 0 {
		var out []string
		for _, pattern := range named {
			found, err := filepath.Glob(pattern)
			if err != nil || len(found) == 0 {
				return nil, fmt.Errorf("no agent socket at %s", pattern)
			}
			out = append(out, found...)
		}
		slices.Sort(out)
		return slices.Compact(out), nil
	}
	dir, err := LabDir(labDir)
	if err != nil {
		return nil, err
	}
	var found []string
	// A lab groups nodes by cluster; a plain directory of nodes does not.
	for _, level := range []string{"*", filepath.Join("*", "*")} {
		sockets, _ := filepath.Glob(filepath.Join(dir, "nodes", level, "run", "agent.sock")) // a directory name that is not a valid pattern has no lab
		found = append(found, sockets...)
	}
	if len(found) > 0 {
		return found, nil
	}
	if labDir != "" {
		return nil, fmt.Errorf("%s: no agent of a lab has a socket there (see hawser lab status)", labDir)
	}
	if _, err := os.Stat(HostSocket); err == nil {
		return []string{HostSocket}, nil
	}
	return nil, errors.New("no agents: run the command in the directory of a topology, start a lab with hawser lab up, or select agents with --context or --socket")
}

// Request is a request to agents.
type Request struct {
	Path     string        // HTTP path at their sockets
	Args     []string      // arguments of hawser-agent in their pods
	duration time.Duration // run time of the command in the agent; if not zero, all agents run it at the same time
	OnStart  func()        // runs before the first request; nil = none
}

// NewRequest returns a request that runs a command of hawser-agent. The flags are the same at
// sockets.
func NewRequest(command string, flags url.Values, duration time.Duration) Request {
	q := Request{Path: "/" + command + "?" + flags.Encode(), Args: []string{command, "-o", "json"}, duration: duration}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		for _, value := range flags[name] {
			q.Args = append(q.Args, "--"+name, value)
		}
	}
	return q
}

func (q Request) started() {
	if q.OnStart != nil {
		q.OnStart()
	}
}

// Response is the response of one agent with its time.
type Response[T any] struct {
	Agent string // socket, or cluster/pod
	Value T
	at    time.Time
}

// responses collects the responses of agents.
type responses[T any] struct {
	mu          sync.Mutex
	all         []Response[T]
	unreachable []status.Unreachable
}

func (r *responses[T]) add(agent string, raw []byte, at time.Time, err error) {
	var value T
	if err == nil {
		if err = json.Unmarshal(raw, &value); err != nil {
			err = fmt.Errorf("read the agent's answer: %w", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.unreachable = append(r.unreachable, status.Unreachable{Agent: agent, Error: kubeclient.ErrorText(err)})
		return
	}
	r.all = append(r.all, Response[T]{agent, value, at})
}

// Agents are the agents to query: at sockets of this machine, or in pods of clusters.
type Agents struct {
	Sockets  []string
	Clusters []*kubeclient.Client
}

// Agents returns the agents that Targets.Resolve selects.
func (f Targets) Agents() (Agents, error) {
	f, sockets, err := f.Resolve()
	if err != nil || len(sockets) > 0 {
		return Agents{Sockets: sockets}, err
	}
	clusters, err := f.Clients()
	return Agents{Clusters: clusters}, err
}

// Query sends a request to the agents that Targets.Resolve selects.
func Query[T any](ctx context.Context, f Targets, q Request) ([]Response[T], []status.Unreachable, error) {
	agents, err := f.Agents()
	if err != nil {
		return nil, nil, err
	}
	got, unreachable := QueryAgents[T](ctx, agents, q)
	return got, unreachable, nil
}

// QueryAgents sends a request to agents.
func QueryAgents[T any](ctx context.Context, agents Agents, q Request) ([]Response[T], []status.Unreachable) {
	var got responses[T]
	q.started()
	if len(agents.Sockets) > 0 {
		got.fromSockets(ctx, agents.Sockets, q)
	} else {
		got.fromPods(ctx, agents.Clusters, q)
	}
	slices.SortFunc(got.unreachable, func(a, b status.Unreachable) int { return cmp.Compare(a.Agent, b.Agent) })
	return got.all, got.unreachable
}

func (r *responses[T]) fromSockets(ctx context.Context, sockets []string, q Request) {
	var group errgroup.Group
	if q.duration == 0 {
		group.SetLimit(maxConcurrentAgents)
	}
	for _, socket := range sockets {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, q.duration+agentTimeout)
			defer cancel()
			raw, err := Fetch(ctx, socket, q.Path)
			r.add(socket, raw, time.Now(), err)
			return nil
		})
	}
	_ = group.Wait() // every function returns nil; r has the errors
}

func (r *responses[T]) fromPods(ctx context.Context, clusters []*kubeclient.Client, q Request) {
	var group sync.WaitGroup
	for _, c := range clusters {
		group.Go(func() {
			answers, err := c.ExecAgents(ctx, kubeclient.AgentCommand{Args: q.Args, Duration: q.duration})
			if err != nil {
				r.add(c.Name, nil, time.Time{}, err)
			}
			for _, answer := range answers {
				r.add(c.Name+"/"+answer.Pod, answer.Text, answer.At, answer.Err)
			}
		})
	}
	group.Wait()
}

// QueryStatus queries the status of the agents that the flags select. It returns the statuses
// sorted by cluster and node.
func QueryStatus(ctx context.Context, env *cli.Env, f Targets) ([]status.Status, []status.Unreachable, error) {
	defer env.Progress("asking the agents")()
	got, unreachable, err := Query[status.Status](ctx, f, StatusRequest())
	return Statuses(got), unreachable, err
}

// StatusRequest returns the request for an agent's status.
func StatusRequest() Request { return Request{Path: "/status", Args: []string{"status", "-o", "json"}} }

// Statuses returns the statuses of responses, sorted.
func Statuses(got []Response[status.Status]) []status.Status {
	agents := make([]status.Status, len(got))
	for i, r := range got {
		agents[i] = r.Value
	}
	return Sort(agents)
}

// Sort sorts statuses by cluster and node, in place.
func Sort(agents []status.Status) []status.Status {
	slices.SortFunc(agents, func(a, b status.Status) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node))
	})
	return agents
}

// WarnUnreachable warns of agents that did not answer.
func WarnUnreachable(env *cli.Env, unreachable []status.Unreachable) {
	for _, u := range unreachable {
		_, _ = fmt.Fprintf(env.Err, "warning: the agent at %s does not answer: %s\n", u.Agent, u.Error)
	}
}

// Post sends a request that changes something to one agent, and decodes its JSON response. agent is
// a Response.Agent.
func (a Agents) Post(ctx context.Context, agent string, q Request, into any) error {
	ctx, cancel := context.WithTimeout(ctx, q.duration+postTimeout)
	defer cancel()
	var raw []byte
	var err error
	if len(a.Sockets) > 0 {
		raw, err = roundTrip(ctx, http.MethodPost, agent, q.Path)
	} else {
		name, pod, _ := strings.Cut(agent, "/")
		i := slices.IndexFunc(a.Clusters, func(c *kubeclient.Client) bool { return c.Name == name })
		if i < 0 {
			return fmt.Errorf("no cluster %s", name)
		}
		raw, err = a.Clusters[i].ExecAgent(ctx, pod, q.Args)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}

// Fetch returns the response of the agent at a socket to a path.
func Fetch(ctx context.Context, socket, path string) ([]byte, error) {
	return roundTrip(ctx, http.MethodGet, socket, path)
}

func roundTrip(ctx context.Context, method, socket, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := unixsocket.Client(socket).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		return nil, fmt.Errorf("read the agent's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the agent answered %s: %s", resp.Status, strings.TrimSpace(string(raw)))
	}
	return raw, nil
}
