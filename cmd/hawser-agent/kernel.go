package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/nodeagent/inventory"
)

// kernelTimeout is how long the kernel of a node with ten thousands of rules may take to
// tell of them.
const kernelTimeout = 15 * time.Second

func kernelCommand() *cobra.Command {
	var socket, output string
	cmd := &cobra.Command{
		Use:   "kernel",
		Short: "Print what this node's kernel has, of Hawser's and of others",
		Long: `Prints links, rules, routes, neighbours, WireGuard peers, nftables and sysctls as the
running agent reads them: what ip, nft and wg would tell, which the image does not
have. Of other people's tables there are the chains and how many rules they have. No
key is told that is not public, and nothing is changed.`,
		Example: `  hawser-agent kernel -o json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output %s: use text or json", output)
			}
			raw, err := askFor(cmd.Context(), kernelTimeout, socket, http.MethodGet, "/kernel")
			if err != nil {
				return err
			}
			if output == "json" {
				_, err := cmd.OutOrStdout().Write(raw)
				return err
			}
			var k inventory.Kernel
			if err := json.Unmarshal(raw, &k); err != nil {
				return fmt.Errorf("read the agent's answer: %w", err)
			}
			return inventory.Print(cmd.OutOrStdout(), k)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSocket, "unix socket of the agent")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func metricsCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:     "metrics",
		Short:   "Print the metrics of the running agent, as Prometheus reads them",
		Example: `  hawser-agent metrics`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := ask(cmd.Context(), socket, http.MethodGet, "/metrics")
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(raw)
			return err
		},
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSocket, "unix socket of the agent")
	return cmd
}
