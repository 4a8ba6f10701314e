package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/unixsocket"
	"hawser.dev/hawser/nodeagent/kernel/userspacewg"
	"hawser.dev/hawser/nodeagent/status"
)

// statusTimeout bounds the response of the agent on this node.
const statusTimeout = 5 * time.Second

func statusCommand() *cobra.Command {
	var socket, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the status of the running agent",
		Example: `  hawser-agent status
  hawser-agent status -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := agentRequest(cmd.Context(), socket, http.MethodGet, "/status")
			if err != nil {
				return err
			}
			if output == "json" {
				_, err := cmd.OutOrStdout().Write(raw)
				return err
			}
			var s status.Status
			if err := json.Unmarshal(raw, &s); err != nil {
				return fmt.Errorf("read status: %w", err)
			}
			return printStatus(cmd.OutOrStdout(), s)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSocket, "unix socket of the agent")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// agentRequest sends a request to the agent's socket and returns the response.
func agentRequest(ctx context.Context, socket, method, path string) ([]byte, error) {
	return request(ctx, statusTimeout, socket, method, path)
}

// request sends a request and waits for the response for at most wait.
func request(ctx context.Context, wait time.Duration, socket, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := unixsocket.Client(socket).Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask agent at %s (is hawser-agent run running?): %w", socket, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask agent at %s: it answered %s: %s", socket, resp.Status, strings.TrimSpace(string(raw)))
	}
	return raw, err
}

func printStatus(w io.Writer, s status.Status) error {
	p := &printer{w: w}
	p.line("node %s of cluster %s, gateway %s, version %s", s.Node, s.Cluster, orNone(s.Gateway), s.Version)
	p.line("fabric %s of clusterset %s, ready: %t", orNone(s.Digest), orNone(s.Clusterset), s.Ready)
	if s.Drained {
		p.line("drained: other gateways are used as long as there are any (hawser-agent undrain takes it back)")
	}
	p.line("last round %s, took %s, changed %d, drift repaired since start %d",
		s.LastRound.At.Format(time.RFC3339), s.LastRound.Took, s.LastRound.Changed, s.LastRound.Drift)
	if s.Trust == nil {
		p.line("signers: none pinned: the agent accepts every delivered fabric (hawser keys signers)")
	} else {
		p.line("signers: %s; fabric at revision %d, keys at %d", strings.Join(s.Trust.Signers, ", "), s.Trust.Fabric, s.Trust.Keys)
	}
	for _, i := range s.Inputs {
		since := ""
		if i.Since != nil {
			since = " since " + i.Since.Format(time.RFC3339)
		}
		p.line("input %s: ok %t, from %s%s %s", i.Name, i.OK, orNone(i.From), since, strings.ReplaceAll(i.Error, "\n", "; "))
	}
	for _, c := range s.Connections {
		p.line("link %s -> %s/%s at %s: %s, %s, %s", c.Gateway, c.RemoteCluster, c.RemoteGateway, orNone(c.Endpoint),
			c.Driver, c.Status, orNone(c.Rank))
	}
	for _, x := range s.Paths {
		p.line("path to %s: %s since %s, %s", x.Cluster, x.Link, x.Since.Format(time.RFC3339), x.Reason)
	}
	for _, n := range s.Nodes {
		p.line("node %s at %s: %s", n.Node, n.Addr, strings.TrimSuffix(n.Path+", "+cmp.Or(n.Reason, n.Device), ", "))
	}
	if c := s.Conntrack; c != nil {
		p.line("conntrack: %d of %d entries", c.Entries, c.Limit)
	}
	for _, d := range s.Dropped {
		if d.Packets > 0 {
			p.line("dropped (%s): %d packets %s", d.Reason, d.Packets, d.Text)
		}
	}
	for _, x := range s.Problems {
		next := ""
		if x.Next != "" {
			next = "; next: " + x.Next
		}
		p.line("%s %s: %s%s", x.Severity, strings.TrimSpace(x.Code+" "+x.Path), x.Text, next)
	}
	return p.err
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// printer keeps the first write error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  hawser-agent version
  hawser-agent --version`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		},
	}
}

// wireguardCommand returns the command that the agent starts if the kernel has no WireGuard. Its
// process owns one tunnel device and outlives the agent.
func wireguardCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "wireguard INTERFACE",
		Short:  "Hold a userspace WireGuard device (started by run)",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			log := slog.New(slog.NewTextHandler(os.Stderr, nil))
			return userspacewg.Serve(cmd.Context(), args[0], userspacewg.DefaultMTU, log)
		},
	}
}
