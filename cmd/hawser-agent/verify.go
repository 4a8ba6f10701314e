package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/nodeagent/observe/verify"
	"hawser.dev/hawser/nodeagent/status"
)

func verifyCommand() *cobra.Command {
	var socket, output string
	var timeout time.Duration
	var exports []string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove that exports are reached from this node",
		Long: `Looks up the names of all exports that this cluster may reach at the agent's own name
server, that of each service and that of each cluster's part of it, and opens a TCP
connection to each address, as a process of this node would. Nothing is sent; servers
see a connection that closes at once. hawser verify asks all nodes.

Exit code 0: everything answered, 1: something did not, 2: error.`,
		Example: `  hawser-agent verify
  hawser-agent verify --export shop/web --timeout 1s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{"timeout": {timeout.String()}, "export": exports}
			raw, err := request(cmd.Context(), verify.MaxDuration+statusTimeout, socket, http.MethodGet, "/verify?"+query.Encode())
			if err != nil {
				return err
			}
			var v status.Verification
			if err := json.Unmarshal(raw, &v); err != nil {
				return fmt.Errorf("read the agent's answer: %w", err)
			}
			failed, err := printVerification(cmd.OutOrStdout(), v, raw, output)
			if err == nil && failed > 0 {
				return errNegative
			}
			return err
		},
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSocket, "unix socket of the agent")
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long a lookup or a connection may take, from 100ms to 30s")
	cmd.Flags().StringSliceVar(&exports, "export", nil, "only this export, NAMESPACE/NAME; may be repeated")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// printVerification gives how many names did not answer.
func printVerification(w io.Writer, v status.Verification, raw []byte, output string) (failed int, err error) {
	p := &printer{w: w}
	reached := 0
	for _, r := range v.Results {
		switch {
		case r.Error != "":
			failed++
		case r.Skipped == "":
			reached++
		}
	}
	switch output {
	case "json":
		_, err := w.Write(raw)
		return failed, err
	case "text":
	default:
		return 0, fmt.Errorf("--output %s: use text or json", output)
	}
	p.line("%d of %d names answered, %d not tried", reached, reached+failed, len(v.Results)-reached-failed)
	for _, r := range v.Results {
		switch {
		case r.Error != "":
			p.line("%s: %s", r.Name, r.Error)
		case r.Skipped != "":
			p.line("%s: not tried: %s", r.Name, r.Skipped)
		}
	}
	return failed, p.err
}
