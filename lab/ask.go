package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"hawser.dev/hawser/internal/unixsocket"
	"hawser.dev/hawser/lab/netnsexec"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/reconciler"
)

// QueryAgent queries the status of the node's agent. The timeout is 2 s.
func (n *NodeStatus) QueryAgent(ctx context.Context) (s status.Status, err error) {
	err = getJSON(ctx, "http://agent/status", &s, unixsocket.Client(filepath.Join(n.Dir, "run", "agent.sock")))
	return s, err
}

func queryAgent(ctx context.Context, n *NodeStatus) {
	s, err := n.QueryAgent(ctx)
	if err != nil {
		n.Agent.Problem = cmp.Or(n.Agent.Problem, "it does not answer")
		return
	}
	n.Agent.Ready, n.Agent.Digest, n.Agent.Problem = s.Ready, s.Digest, ""
	if !s.Ready {
		n.Agent.Problem = problem(&s)
	}
	for _, e := range s.Exports {
		for _, c := range e.Clusters {
			if c.Ready == status.Unknown && !slices.Contains(n.Agent.MissingFeeds, c.Name) {
				n.Agent.MissingFeeds = append(n.Agent.MissingFeeds, c.Name)
			}
		}
	}
	slices.Sort(n.Agent.MissingFeeds)
}

// problem returns the first reason why an agent is not ready.
func problem(s *status.Status) string {
	for _, input := range s.Inputs {
		if !input.OK && input.Error != "" {
			return input.Name + ": " + input.Error
		}
	}
	if len(s.LastRound.Failed) > 0 {
		return s.LastRound.Failed[0]
	}
	if len(s.LastRound.Blocked) > 0 {
		return "blocked: " + s.LastRound.Blocked[0]
	}
	return "not ready"
}

func (d *daemon) queryReconciler(ctx context.Context, out *ReconcilerStatus) {
	if out.PID == 0 {
		return
	}
	var s reconciler.Status
	dial := func(context.Context, string, string) (conn net.Conn, err error) {
		err = netnsexec.Do(d.reconcilerNS.path, func() (err error) {
			conn, err = net.DialTimeout("tcp", reconcilerListen, time.Second)
			return err
		})
		return conn, err
	}
	err := getJSON(ctx, "http://reconciler/status", &s,
		&http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}})
	if err != nil {
		out.Error = cmp.Or(out.Error, "it does not answer")
		return
	}
	out.Error = ""
	if s.Active != nil {
		out.Applied = s.Active.Commit
	}
	if s.Latest != nil {
		out.Latest = s.Latest.Commit
	}
	if s.LastError != nil {
		out.Error, out.Refused, out.Diagnostics = s.LastError.Message, s.LastError.Refused(), s.LastError.Diagnostics
	}
}

func getJSON(ctx context.Context, url string, into any, client *http.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, 64<<20)).Decode(into)
}
