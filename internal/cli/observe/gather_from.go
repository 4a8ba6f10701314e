package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/internal/supportbundle"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterdump"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// gatherTimeout bounds all requests to an agent on this machine.
const gatherTimeout = 30 * time.Second

// clusters collects from the APIs of clusters and from the agents in their pods.
func (g *collector) clusters(ctx context.Context, clusters []*kubeclient.Client, since time.Duration) {
	kubeclient.ForEach(clusters, func(_ int, c *kubeclient.Client) {
		dir := path.Join("clusters", safeFileName(c.Name))
		put := func(file string, text []byte, err error) {
			if file == "version.json" {
				g.recordAPI(c.Name, text)
			}
			if file == "fabric.json" && err == nil {
				g.recordFabric(text)
			}
			g.put(path.Join(dir, file), text, err)
		}
		if err := c.Ping(ctx); err != nil { // further requests would fail too
			g.put(dir, nil, err)
			g.recordState(health.State{Cluster: c.Name, Context: c.Context, Error: kubeclient.ErrorText(err)})
			return
		}
		var group sync.WaitGroup
		group.Go(func() { clusterdump.Gather(ctx, c, since, put) })
		group.Go(func() { g.recordState(clusterstatus.Read(ctx, c)) })
		for _, t := range topics() {
			group.Go(func() {
				answers, err := c.ExecAgents(ctx, kubeclient.AgentCommand{Args: t.Args})
				if err != nil {
					put(t.dir, nil, err)
				}
				for _, answer := range answers {
					file := path.Join(t.dir, safeFileName(answer.Pod)+t.ext)
					put(file, answer.Text, answer.Err)
					if answer.Err == nil {
						g.recordSummary(t, c.Name+"/"+answer.Pod, answer.Text)
					}
				}
			})
		}
		group.Wait()
	})
	slices.SortFunc(g.states, func(a, b health.State) int { return strings.Compare(a.Cluster, b.Cluster) })
}

// recordSummary adds the relevant fields of a response to the summary.
func (g *collector) recordSummary(t topic, who string, text []byte) {
	switch t.dir {
	case "status":
		var s status.Status
		if json.Unmarshal(text, &s) == nil {
			g.mu.Lock()
			g.agents = append(g.agents, s)
			g.mu.Unlock()
		}
	case "plan":
		if plain := bytes.TrimSpace(text); string(plain) != converge.NoChanges {
			last := plain[bytes.LastIndexByte(plain, '\n')+1:]
			g.addNote("%s: its kernel is not as it should be. %s", who, last)
		}
	}
}

func (g *collector) recordState(s health.State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.states = append(g.states, s)
}

// recordFabric stores the first fabric that it can decode.
func (g *collector) recordFabric(text []byte) {
	f, _, err := fabric.Decode(text)
	if err != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fabric == nil {
		g.fabric = f
	}
}

func (g *collector) recordAPI(cluster string, text []byte) {
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if json.Unmarshal(text, &version) != nil || version.GitVersion == "" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.apis = append(g.apis, cluster+" Kubernetes "+version.GitVersion)
}

// labNode is the cluster and name of a node in its lab.
type labNode struct{ cluster, name string }

// host collects from agents on this machine, and from their lab in the directory labDir.
func (g *collector) host(ctx context.Context, sockets []string, labDir string) {
	nodes := map[string]labNode{} // by directory
	if labDir != "" {
		nodes = g.lab(ctx, labDir)
	}
	var group sync.WaitGroup
	for _, socket := range sockets {
		group.Go(func() { g.agent(ctx, socket, nodes[nodeDir(socket)], labDir != "") })
	}
	group.Wait()
}

// nodeDir returns the directory of a lab's node; the socket is run/agent.sock in it.
func nodeDir(socket string) string { return filepath.Dir(filepath.Dir(socket)) }

// agent collects from one agent. The agent's name comes from its lab or from its status.
func (g *collector) agent(ctx context.Context, socket string, node labNode, ofLab bool) {
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	raw, err := agentquery.Fetch(ctx, socket, "/status")
	cluster, name := node.cluster, node.name
	var s status.Status
	if err == nil && json.Unmarshal(raw, &s) == nil {
		cluster, name = s.Cluster, s.Node
	}
	if name == "" {
		cluster, name = "unknown", filepath.Base(nodeDir(socket))
	}
	dir := path.Join("clusters", safeFileName(cluster))
	if ofLab {
		g.file(path.Join(dir, "logs", safeFileName(name)+".log"), filepath.Join(nodeDir(socket), "agent.log"))
	}
	if err != nil {
		g.put(path.Join(dir, "status", safeFileName(name)+".json"), nil, fmt.Errorf("%s: %w", socket, err))
		return // further requests would fail too
	}
	for _, t := range topics() {
		text, err := agentquery.Fetch(ctx, socket, t.Path)
		g.put(path.Join(dir, t.dir, safeFileName(name)+t.ext), text, err)
		if err == nil {
			g.recordSummary(t, cluster+"/"+name, text)
		}
	}
}

// file adds the end of a file of this machine.
func (g *collector) file(name, from string) {
	text, err := tailOf(from)
	g.put(name, text, err)
}

func tailOf(from string) ([]byte, error) {
	file, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	// Do not read a very long file from its beginning.
	skipped := max(0, info.Size()-2*clusterdump.MaxLog)
	if _, err := file.Seek(skipped, io.SeekStart); err != nil {
		return nil, err
	}
	text, omitted, err := supportbundle.Tail(file, clusterdump.MaxLog)
	return clusterdump.NewestLog(text, omitted+skipped, err)
}
