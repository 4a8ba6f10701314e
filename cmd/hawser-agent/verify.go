package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/nodeagent/observe/connprobe"
	"hawser.dev/hawser/nodeagent/observe/verify"
	"hawser.dev/hawser/nodeagent/status"
)

func verifyCommand() *cobra.Command {
	var socket, output, protocol string
	var timeout time.Duration
	var exports []string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Test every export from this node",
		Long: `Resolve the names of all exports that this cluster may reach at the agent's own name server:
the name of each Service and of each cluster's part of it. Then open a TCP connection to
each address, and send a datagram to each UDP port, as a process of this node. Servers see
connections that close at once, and datagrams with a line end (DNS servers: the query
"NS ."). hawser verify tests from all nodes, and from pods on them.

Exit codes: 0 everything answered; 1 something did not; 2 unknown, because there is no
export, a UDP server sent no reply, or an error.`,
		Example: `  hawser-agent verify
  hawser-agent verify --export shop/web --timeout 1s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{"timeout": {timeout.String()}, "export": exports, "protocol": {protocol}}
			raw, err := request(cmd.Context(), verify.MaxDuration+statusTimeout, socket, http.MethodGet, "/verify?"+query.Encode())
			if err != nil {
				return err
			}
			var v status.Verification
			if err := json.Unmarshal(raw, &v); err != nil {
				return fmt.Errorf("read the agent's answer: %w", err)
			}
			verdict, err := printVerification(cmd.OutOrStdout(), v, raw, output)
			switch {
			case err != nil:
				return err
			case verdict == status.VerdictFailed:
				return errNegative
			case verdict == status.VerdictSkipped:
				return errors.New("nothing to verify: there is no export that this cluster may reach")
			case verdict == status.VerdictUnknown:
				return errors.New("unknown whether every export is reachable")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSocket, "unix socket of the agent")
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long a lookup or a connection may take, from 100ms to 30s")
	cmd.Flags().StringSliceVar(&exports, "export", nil, "only this export, NAMESPACE/NAME; may be repeated")
	cmd.Flags().StringVar(&protocol, "protocol", "", "only ports of this protocol: tcp or udp")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// printVerification prints the results and returns their worst verdict: skipped if nothing was
// tested.
func printVerification(w io.Writer, v status.Verification, raw []byte, output string) (status.Verdict, error) {
	count := map[status.Verdict]int{}
	for _, r := range v.Results {
		count[r.Verdict()]++
	}
	worst := status.VerdictSkipped
	for _, verdict := range []status.Verdict{status.VerdictAnswered, status.VerdictUnknown, status.VerdictFailed} {
		if count[verdict] > 0 {
			worst = verdict
		}
	}
	switch output {
	case "json":
		_, err := w.Write(raw)
		return worst, err
	case "text":
	default:
		return worst, fmt.Errorf("--output %s: use text or json", output)
	}
	p := &printer{w: w}
	p.line("%d of %d names answered, %d unknown, %d not tested", count[status.VerdictAnswered],
		len(v.Results)-count[status.VerdictSkipped], count[status.VerdictUnknown], count[status.VerdictSkipped])
	for _, r := range v.Results {
		for _, text := range []struct{ prefix, text string }{{"", r.Error}, {"unknown: ", r.Unknown}, {"not tested: ", r.Skipped}} {
			if text.text != "" {
				p.line("%s: %s%s", r.Name, text.prefix, text.text)
			}
		}
	}
	return worst, p.err
}

// podCheckCommand returns the command that the pods of hawser verify run. It needs no agent.
func podCheckCommand() *cobra.Command {
	var v verify.Verifier
	var checks []string
	var prefixes []string
	cmd := &cobra.Command{
		Use:    "podcheck",
		Short:  "Test names from a pod (started by hawser verify)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := make([]status.Check, len(checks))
			for i, text := range checks {
				if err := json.Unmarshal([]byte(text), &list[i]); err != nil {
					return fmt.Errorf("--check: %w", err)
				}
			}
			for _, text := range prefixes {
				p, err := netip.ParsePrefix(text)
				if err != nil {
					return fmt.Errorf("--prefix: %w", err)
				}
				v.Prefixes = append(v.Prefixes, p)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), verify.MaxDuration)
			defer cancel()
			out := json.NewEncoder(cmd.OutOrStdout())
			for _, r := range v.All(ctx, list) { // one line each: logs split lines longer than 16 KiB
				if err := out.Encode(r); err != nil {
					return err
				}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&checks, "check", nil, "name to test, in JSON; may be repeated")
	flags.StringSliceVar(&prefixes, "prefix", nil, "prefix of addresses that names may have; may be repeated")
	flags.DurationVar(&v.Timeout, "timeout", 3*time.Second, "how long a lookup or a connection may take")
	return cmd
}

// connProbeCommand returns the command that the pods of hawser verify --failover run. It needs no
// agent.
func connProbeCommand() *cobra.Command {
	var to []string
	var duration time.Duration
	cmd := &cobra.Command{
		Use:    "connprobe",
		Short:  "Keep TCP connections open and open new ones (started by hawser verify --failover)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), duration)
			defer cancel()
			prober := connprobe.New(to)
			ended := make(chan struct{})
			go func() { defer close(ended); prober.Run(ctx) }()
			out := json.NewEncoder(cmd.OutOrStdout())
			for { // only the last line counts
				select {
				case <-ended:
					return out.Encode(prober.Report())
				case <-time.After(500 * time.Millisecond):
				}
				if err := out.Encode(prober.Report()); err != nil {
					return err
				}
			}
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&to, "to", nil, "address:port; may be repeated")
	flags.DurationVar(&duration, "for", 5*time.Minute, "how long it probes")
	return cmd
}
