package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"hawser.dev/hawser/nodeagent/status"
)

// drainPollInterval is the interval at which drain polls the agent.
const drainPollInterval = 100 * time.Millisecond

func drainCommand() *cobra.Command {
	var socket, output string
	var wait, drill time.Duration
	var untilRestart bool
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Drain this gateway for maintenance of its node",
		Long: `Move all traffic of this gateway to others, and wait until no cluster uses it. The
gateway forwards packets until then, so no packet is lost. The mark survives restarts
of agent and node, until hawser-agent undrain; with --until-restart it ends with the
running agent. SIGTERM alone drains nothing: tunnels keep forwarding without an agent.

Clusters without another path continue to use the gateway. If only such clusters are
left, the command lists them and ends.

Exit codes: 0 no cluster uses the gateway, or the node is no gateway; 1 it is drained
and still in use; 2 error.`,
		Example: `  hawser-agent drain && systemctl reboot
  hawser-agent drain --wait 2m --until-restart`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := requestDrain(cmd.Context(), socket, http.MethodGet, "/drain")
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("drill") {
				if d, err = requestDrain(cmd.Context(), socket, http.MethodPost, "/drain/drill?"+url.Values{"for": {drill.String()}}.Encode()); err != nil {
					return err
				}
				return printDrill(cmd.OutOrStdout(), d, output)
			}
			if d.Gateway == "" {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "this node is no gateway: there is nothing to drain")
				return err
			}
			path := "/drain"
			if untilRestart {
				path = "/drain/until-restart"
			}
			if _, err := requestDrain(cmd.Context(), socket, http.MethodPost, path); err != nil {
				return err
			}
			return waitUnused(cmd, socket, wait)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSocket, "unix socket of the agent")
	cmd.Flags().BoolVar(&untilRestart, "until-restart", false, "drain until the agent ends, not until undrain")
	cmd.Flags().DurationVar(&drill, "drill", 0, "drain for this time at most, and list the users of the gateway without waiting; 0s ends a drill")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text; with --drill also json")
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "time to wait until no cluster uses the gateway; 0 = do not wait")
	return cmd
}

func undrainCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:     "undrain",
		Short:   "Let traffic use this gateway again",
		Example: `  hawser-agent undrain`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := requestDrain(cmd.Context(), socket, http.MethodPost, "/undrain")
			return err
		},
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSocket, "unix socket of the agent")
	return cmd
}

// printDrill prints the users of a gateway during a drill of hawser verify --failover.
func printDrill(w io.Writer, d status.Drain, output string) error {
	if output == "json" {
		return json.NewEncoder(w).Encode(d)
	}
	if output != "text" {
		return fmt.Errorf("--output %s: use text or json", output)
	}
	_, err := fmt.Fprintf(w, "gateway %s: drained: %t, used by: %s\n", d.Gateway, d.Drained, cmp.Or(strings.Join(d.Users, ", "), "none"))
	return err
}

func requestDrain(ctx context.Context, socket, method, path string) (status.Drain, error) {
	var d status.Drain
	raw, err := agentRequest(ctx, socket, method, path)
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, fmt.Errorf("read the agent's answer: %w", err)
	}
	return d, nil
}

// waitUnused waits until no cluster uses the gateway, and prints the remaining users. On a terminal
// it prints each change, elsewhere only the last state.
func waitUnused(cmd *cobra.Command, socket string, wait time.Duration) error {
	startedAt := time.Now()
	progress := io.Discard
	if file, ok := cmd.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		progress = file
	}
	printed := ""
	for {
		d, err := requestDrain(cmd.Context(), socket, http.MethodGet, "/drain")
		if err != nil {
			return err
		}
		if len(d.Users) == 0 {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "gateway %s is drained: no cluster uses it\n", d.Gateway)
			return err
		}
		users := strings.Join(d.Users, ", ")
		if users != printed {
			_, _ = fmt.Fprintf(progress, "%5.1fs still used by %s\n", time.Since(startedAt).Seconds(), users)
			printed = users
		}
		if len(d.NoAlternative) > 0 && d.Drained {
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "gateway %s is drained, but still used by %s: no alternative gateway is available\n", d.Gateway, users)
			return errNegative
		}
		if time.Since(startedAt) >= wait {
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "gateway %s is drained, but still used by %s\n", d.Gateway, users)
			return errNegative
		}
		select {
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		case <-time.After(drainPollInterval):
		}
	}
}
