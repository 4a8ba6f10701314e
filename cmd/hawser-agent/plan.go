package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/nodeagent/converge"
)

func planCommand() *cobra.Command {
	var s settings
	var output string
	var running bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print the kernel changes that run would make now",
		Long: `Print every kernel object that hawser-agent run would create, change or delete now. If an
agent runs on this node, the plan uses its state: active links and the reports of other
clusters. --running also uses its settings instead of the flags given here; the output is
text.

Exit codes: 0 no changes; 1 changes; 2 error.`,
		Example: `  hawser-agent plan --running`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if running {
				raw, err := request(cmd.Context(), kernelTimeout, s.config.Socket, http.MethodGet, "/plan")
				if err != nil {
					return err
				}
				if _, err := cmd.OutOrStdout().Write(raw); err != nil {
					return err
				}
				if strings.TrimSpace(string(raw)) != converge.NoChanges {
					return errNegative
				}
				return nil
			}
			return s.plan(cmd, output)
		},
	}
	s.register(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.Flags().BoolVar(&running, "running", false, "use the settings of the agent that runs on this node")
	cmd.MarkFlagsMutuallyExclusive("running", "output")
	return cmd
}

// plan prints the plan of an agent with these settings.
func (s *settings) plan(cmd *cobra.Command, output string) (err error) {
	a, err := s.agent()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	changes, err := a.Plan(cmd.Context())
	if err != nil {
		return err
	}
	if err := printPlan(cmd.OutOrStdout(), changes, output); err != nil {
		return err
	}
	if len(changes) > 0 {
		return errNegative
	}
	return nil
}

func printPlan(w io.Writer, changes []converge.Change, output string) error {
	switch output {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(changes)
	case "text":
	default:
		return fmt.Errorf("--output %s: use text or json", output)
	}
	return converge.PrintPlan(w, changes)
}

func cleanupCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove all objects with Hawser's marks and restore sysctls",
		Long: `Remove devices hw-* with alias hawser, routes and rules of protocol 73 in tables 7300 to
7307, rules of priority 7298 and protocol 74, and nftables table inet hawser. Restore the
sysctls that the agent changed. Foreign objects stay. Stop the agent first.`,
		Example: `  hawser-agent cleanup`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			// Marks are the same on every node, so the node name is optional.
			s.config.Cluster, s.config.Node = cmp.Or(s.config.Cluster, "any"), cmp.Or(s.config.Node, "any")
			a, err := s.agent()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, a.Close()) }()
			report, err := a.Cleanup(cmd.Context())
			for _, c := range report.Changed {
				fmt.Fprintln(cmd.OutOrStdout(), c)
			}
			return err
		},
	}
	s.register(cmd)
	// plan accepts the flags of run that have no effect on a plan.
	for _, name := range []string{"cluster", "node", "fabric", "keys", "identity", "trust", "facts", "leases", "hawsernodes", "kubernetes", "kubeconfig", "context",
		"socket", "dns-listen", "metrics", "resync", "feed-stale"} {
		_ = cmd.Flags().MarkHidden(name) // the flag exists: see the test
	}
	return cmd
}
