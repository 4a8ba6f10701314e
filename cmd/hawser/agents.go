package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"hawser.dev/hawser/lab"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/reconciler/apply"
)

const (
	agentSocket  = "/run/hawser/agent.sock" // of an agent on this host
	agentTimeout = 3 * time.Second
	agentsAtOnce = 16
	maxStatus    = 64 << 20
	maxReason    = 4 << 10 // of an agent that refuses
)

// unreachable is an agent that did not answer.
type unreachable struct {
	Socket string `json:"socket"` // or cluster/pod, or the cluster alone
	Error  string `json:"error"`
}

// agentSockets finds the sockets to ask: those named, those of a lab, or that
// of this host.
func agentSockets(named []string, labDir string) ([]string, error) {
	if len(named) > 0 {
		return expand(named)
	}
	dir, err := lab.DirFrom(labDir, os.Getenv(lab.DirEnv))
	if err != nil {
		return nil, err
	}
	if found := labSockets(dir); len(found) > 0 {
		return found, nil
	}
	if labDir != "" {
		return nil, fmt.Errorf("%s: no agent of a lab has a socket there (hawser lab status tells more)", labDir)
	}
	if _, err := os.Stat(agentSocket); err == nil {
		return []string{agentSocket}, nil
	}
	return nil, errors.New("no agent to ask: start a lab with hawser lab up, or name an agent's socket with --socket")
}

// labSockets finds the agents' sockets: a lab keeps nodes by cluster, a plain
// folder of nodes does not.
func labSockets(dir string) []string {
	var out []string
	for _, level := range []string{"*", filepath.Join("*", "*")} {
		found, err := filepath.Glob(filepath.Join(dir, "nodes", level, "run", "agent.sock"))
		if err != nil {
			return nil // a folder whose name is no pattern holds no lab
		}
		out = append(out, found...)
	}
	return out
}

func expand(patterns []string) ([]string, error) {
	var out []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("no agent socket at %s", pattern)
		}
		out = append(out, found...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// askAgents asks all agents at once. What answered comes ordered by cluster and node.
func askAgents(ctx context.Context, sockets []string) ([]status.Status, []unreachable) {
	answers := make([]status.Status, len(sockets))
	errs := make([]error, len(sockets))
	var group errgroup.Group
	group.SetLimit(agentsAtOnce)
	for i, socket := range sockets {
		group.Go(func() error {
			answers[i], errs[i] = askAgent(ctx, socket)
			return nil
		})
	}
	_ = group.Wait() // every function gives nil; the errors are in errs
	var out []status.Status
	var silent []unreachable
	for i := range sockets {
		if errs[i] != nil {
			silent = append(silent, unreachable{Socket: sockets[i], Error: errs[i].Error()})
			continue
		}
		out = append(out, answers[i])
	}
	return ordered(out), silent
}

func ordered(agents []status.Status) []status.Status {
	slices.SortFunc(agents, func(a, b status.Status) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node))
	})
	return agents
}

// askClusters asks the agents of clusters, in their pods.
func askClusters(ctx context.Context, clusters []*apply.Cluster) (agents []status.Status, silent []unreachable) {
	var mu sync.Mutex
	apply.Each(clusters, func(_ int, c *apply.Cluster) {
		answers, err := c.Ask(ctx, apply.Question{Args: []string{"status", "-o", "json"}})
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			silent = append(silent, unreachable{Socket: c.Name, Error: apply.Reason(err)})
		}
		for _, answer := range answers {
			var s status.Status
			if answer.Err == nil {
				answer.Err = json.Unmarshal(answer.Text, &s)
			}
			if answer.Err != nil {
				silent = append(silent, unreachable{Socket: c.Name + "/" + answer.Pod, Error: apply.Reason(answer.Err)})
				continue
			}
			agents = append(agents, s)
		}
	})
	slices.SortFunc(silent, func(a, b unreachable) int { return cmp.Compare(a.Socket, b.Socket) })
	return ordered(agents), silent
}

func askAgent(ctx context.Context, socket string) (s status.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	return s, fetch(ctx, socket, "/status", &s)
}

// fetch reads what the agent at a socket answers to a path.
func fetch(ctx context.Context, socket, path string, into any) error {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dialUnix(ctx, socket) },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason))
		return fmt.Errorf("the agent answered %s: %s", resp.Status, strings.TrimSpace(string(why)))
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxStatus)).Decode(into); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}

// maxSocketPath is what a socket's address has room for (unix(7)).
const maxSocketPath = 107

// dialUnix reaches sockets with long paths through their folder's descriptor.
func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	if len(path) <= maxSocketPath {
		return d.DialContext(ctx, "unix", path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}
