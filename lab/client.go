package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"hawser.dev/hawser/internal/unixsocket"
	"hawser.dev/hawser/lab/netnsexec"
)

// Client is a client for the daemon of a running lab.
type Client struct {
	layout Layout
	http   *http.Client
}

// NewClient returns a client for the lab in a directory. It connects at the first request.
func NewClient(l Layout) *Client {
	return &Client{layout: l, http: unixsocket.Client(l.Socket())}
}

// ErrNotRunning is returned if a lab's daemon does not respond.
var ErrNotRunning = errors.New("the lab does not run: start it with hawser lab up")

// Status returns the status of the lab.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var out Status
	return out, c.call(ctx, http.MethodGet, "/status", nil, &out)
}

// Change changes the workloads of a cluster. It returns after the nodes have applied the change.
func (c *Client) Change(ctx context.Context, change Change) error {
	return c.call(ctx, http.MethodPost, "/change", change, nil)
}

// Fault injects a fault into the lab or heals it. It returns after the daemon has applied the
// fault.
func (c *Client) Fault(ctx context.Context, f Fault) error {
	return c.call(ctx, http.MethodPost, "/fault", f, nil)
}

// ExecAt returns the environment of a program in a pod (CLUSTER/NAMESPACE/POD) or on a node
// (CLUSTER/NODE). The caller sets Argv.
func (c *Client) ExecAt(ctx context.Context, target string) (netnsexec.Exec, error) {
	var e netnsexec.Exec
	return e, c.call(ctx, http.MethodGet, "/place?target="+url.QueryEscape(target), nil, &e)
}

// Exec replaces the calling process by a program in a pod (CLUSTER/NAMESPACE/POD), on a node
// (CLUSTER/NODE) or in the underlay (Underlay). It returns only on failure.
func (c *Client) Exec(ctx context.Context, target string, argv []string) error {
	e, err := c.ExecAt(ctx, target)
	if err != nil {
		return err
	}
	config, err := readConfig(c.layout)
	if err != nil {
		return err
	}
	e.Argv = argv
	return e.Replace(environment(c.layout, config))
}

// AgentCommand returns a command that runs hawser-agent with args in a pod (CLUSTER/NAMESPACE/POD).
func (c *Client) AgentCommand(ctx context.Context, pod string, args ...string) (*exec.Cmd, error) {
	at, err := c.ExecAt(ctx, pod)
	if err != nil {
		return nil, err
	}
	config, err := readConfig(c.layout)
	if err != nil {
		return nil, err
	}
	at.Argv = append([]string{config.Agent}, args...)
	cmd := exec.CommandContext(ctx, config.Hawser, append([]string{"lab", "nsexec"}, at.Args()...)...)
	cmd.Env = environment(c.layout, config)
	return cmd, nil
}

// Running reports whether the lab's daemon responds.
func (c *Client) Running(ctx context.Context) bool {
	var out []Event
	return c.call(ctx, http.MethodGet, "/events", nil, &out) == nil
}

func (c *Client) events(ctx context.Context, from int) ([]Event, error) {
	var out []Event
	return out, c.call(ctx, http.MethodGet, fmt.Sprintf("/events?from=%d", from), nil, &out)
}

// LogFile returns the log file of a node's agent.
func (c *Client) LogFile(ctx context.Context, target string) (string, error) {
	s, err := c.Status(ctx)
	if err != nil {
		return "", err
	}
	if target == "reconciler" {
		return s.Reconciler.Log, nil
	}
	for _, n := range s.Nodes {
		if n.Cluster+"/"+n.Name == target {
			return filepath.Join(n.Dir, "agent.log"), nil
		}
	}
	return "", fmt.Errorf("node %q not found: write CLUSTER/NODE, as hawser lab status does, or reconciler", target)
}

func (c *Client) call(ctx context.Context, method, path string, body, into any) error {
	if _, err := readConfig(c.layout); err != nil {
		return err
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("ask the lab: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://lab"+path, bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("ask the lab: %w", err)
	}
	resp, err := c.http.Do(req)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s: %w", c.layout.Dir, ErrNotRunning)
	}
	if err != nil {
		return fmt.Errorf("ask the lab: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var response struct{ Error string }
		if json.NewDecoder(resp.Body).Decode(&response) != nil || response.Error == "" {
			return fmt.Errorf("ask the lab: %s", resp.Status)
		}
		return errors.New(response.Error)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("ask the lab: %w", err)
	}
	return nil
}
