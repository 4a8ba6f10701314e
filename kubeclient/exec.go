package kubeclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"hawser.dev/hawser/render"
)

const (
	agentTimeout        = 20 * time.Second // for the response of one agent
	maxConcurrentAgents = 8
	// AgentContainer and agentProgram match the rendered DaemonSets and the image.
	AgentContainer = "agent"
	agentProgram   = "/hawser-agent"
)

// AgentCommand is a command to run in the pods of agents.
type AgentCommand struct {
	Args []string // arguments of hawser-agent
	// Duration is the run time of the command in the agent. If it is not zero, all agents run
	// it at the same time, otherwise eight.
	Duration time.Duration
}

// AgentOutput is the output of one agent, or the reason if it is missing.
type AgentOutput struct {
	Pod  string
	Text []byte
	At   time.Time // time of the response
	Err  error
}

// RunningAgents returns the pods in which ExecAgent can run hawser-agent.
func (c *Client) RunningAgents(ctx context.Context) ([]unstructured.Unstructured, error) {
	list, err := c.AgentPods(ctx)
	return slices.DeleteFunc(list, func(p unstructured.Unstructured) bool {
		return !strings.HasPrefix(p.GetLabels()["app.kubernetes.io/name"], "hawser-")
	}), err
}

// ExecAgent runs hawser-agent with arguments in one agent's pod, like ExecAgents. ctx bounds the
// run time.
func (c *Client) ExecAgent(ctx context.Context, pod string, args []string) ([]byte, error) {
	return c.execute(ctx, pod, append([]string{agentProgram}, args...))
}

// ExecAgents runs hawser-agent with arguments in each agent's pod, like kubectl exec (over
// WebSocket, which API servers support from Kubernetes 1.30). Exit code 1 is a negative result, and
// exit code 2 with JSON is an unknown result; both are responses.
func (c *Client) ExecAgents(ctx context.Context, q AgentCommand) ([]AgentOutput, error) {
	if err := c.Ping(ctx); err != nil {
		return nil, err
	}
	list, err := c.RunningAgents(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]AgentOutput, len(list))
	var group errgroup.Group
	if q.Duration == 0 {
		group.SetLimit(maxConcurrentAgents)
	}
	for i := range list {
		group.Go(func() error {
			out[i] = AgentOutput{Pod: list[i].GetName()}
			ctx, cancel := context.WithTimeout(ctx, q.Duration+agentTimeout)
			defer cancel()
			out[i].Text, out[i].Err = c.ExecAgent(ctx, list[i].GetName(), q.Args)
			out[i].At = time.Now()
			return nil
		})
	}
	_ = group.Wait() // every function returns nil; the errors are in the answers
	return out, nil
}

// execute runs a command in an agent's container.
func (c *Client) execute(ctx context.Context, pod string, command []string) ([]byte, error) {
	config := rest.CopyConfig(c.config)
	config.Timeout = 0 // of the whole stream; ctx bounds it
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	target := base.JoinPath("api/v1/namespaces", render.Namespace, "pods", pod, "exec")
	target.RawQuery = url.Values{"container": {AgentContainer}, "command": command, "stdout": {"true"}, "stderr": {"true"}}.Encode()
	executor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, target.String())
	if err != nil {
		return nil, err
	}
	var out, errs bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
	var code exec.CodeExitError
	if errors.As(err, &code) && out.Len() > 0 && (code.Code == 1 || code.Code == 2 && json.Valid(out.Bytes())) {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w %s", err, strings.TrimSpace(errs.String()))
	}
	return out.Bytes(), nil
}
