package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
)

func planCommand() *cobra.Command {
	var s settings
	var output string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print the kernel changes that run would make now, and make none",
		Long: `Prints every kernel object that run would create, change or delete now. While an
agent runs on this node, the plan uses what that one sees: which links are in
use, and what other clusters say. Exit code 0: nothing to do, 1: changes, 2: error.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
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
				return errNo
			}
			return nil
		},
	}
	s.register(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
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
	count := map[diff.Op]int{}
	for _, c := range changes {
		count[c.Op]++
		if _, err := fmt.Fprintln(w, c); err != nil {
			return err
		}
		if c.Origin != "" {
			if _, err := fmt.Fprintf(w, "    by %s\n", c.Origin); err != nil {
				return err
			}
		}
	}
	if len(changes) == 0 {
		_, err := fmt.Fprintln(w, "No changes.")
		return err
	}
	_, err := fmt.Fprintf(w, "Plan: %d to create, %d to update, %d to replace, %d to delete.\n",
		count[diff.Create], count[diff.Update], count[diff.Replace], count[diff.Delete])
	return err
}

func cleanupCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that carries Hawser's marks and restore sysctls",
		Long: `Removes links hw-* with alias hawser, routes and rules of protocol 73 in tables
7300 to 7307, rules of priority 7298 and protocol 74, and nftables table inet
hawser; restores the sysctls that the agent changed. Stop the agent first. Nothing else is touched.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			// Marks are the same on every node, so nobody has to say which one this is.
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
	// They may be given as to run, and mean nothing here.
	for _, name := range []string{"cluster", "node", "fabric", "keys", "identity", "facts", "kubernetes", "kubeconfig", "context",
		"socket", "dns-listen", "metrics", "resync", "feed-stale"} {
		_ = cmd.Flags().MarkHidden(name) // it exists: see the test
	}
	return cmd
}
