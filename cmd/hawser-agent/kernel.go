package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/nodeagent/kernel/inventory"
)

// kernelTimeout bounds a read of the kernel state. A node may have tens of thousands of rules.
const kernelTimeout = 15 * time.Second

func kernelCommand() *cobra.Command {
	var socket, output string
	cmd := &cobra.Command{
		Use:   "kernel",
		Short: "Print this node's network objects, of Hawser and of others",
		Long: `Print links, rules, routes, neighbours, WireGuard peers, nftables and sysctls as the running
agent reads them; the image has no ip, nft and wg. With -o json, links, rules, routes,
neighbors, fdb and nftables have the form of ip -j, bridge -j and nft -j. Of other
programs' chains it prints only the number of rules. Keys are public keys. Nothing
changes.`,
		Example: `  hawser-agent kernel -o json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output %s: use text or json", output)
			}
			raw, err := request(cmd.Context(), kernelTimeout, socket, http.MethodGet, "/kernel")
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
			raw, err := agentRequest(cmd.Context(), socket, http.MethodGet, "/metrics")
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
