//go:build linux

package lab

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/lab"
)

func newLabStatusCommand(f *labFlags) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show reconciler, nodes, agents, pods and Services",
		Example: `  hawser lab status`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}
			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if output == "json" {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(s)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintf(w, "lab\t%s\n", s.Dir)
			fmt.Fprintf(w, "topology\t%s\n", s.Repo)
			fmt.Fprintf(w, "published\t%s\n", cmp.Or(s.Published, "nothing"))
			fmt.Fprintf(w, "for commit\t%s\n", cmp.Or(s.Source, "-"))
			fmt.Fprintf(w, "newest commit\t%s\n", cmp.Or(s.Reconciler.Latest, "-"))
			fmt.Fprintf(w, "fabric\t%s\n", cmp.Or(s.Digest, "-"))
			if len(s.SyncStopped) > 0 {
				fmt.Fprintf(w, "sync stopped\t%s\n", strings.Join(s.SyncStopped, ", "))
			}
			for _, line := range reconcilerLines(s.Reconciler.Error, s.Reconciler.Diagnostics) {
				fmt.Fprintf(w, "reconciler\t%s\n", line)
			}
			fmt.Fprint(w, "\nNODE\tSTATE\tLAN\tWAN\tPODS\tAGENT\tFABRIC\tFAULTS\n")
			for _, n := range s.Nodes {
				fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.Cluster, n.Name, n.State, strings.Join(n.LAN, ","),
					cmp.Or(strings.Join(n.WAN, ","), "-"), strings.Join(n.PodCIDRs, ","), agentText(n.Agent),
					cmp.Or(n.Agent.Digest, "-"), cmp.Or(strings.Join(n.Faults, ", "), "-"))
			}
			fmt.Fprint(w, "\nPOD\tNODE\tIP\tREADY\n")
			for _, p := range s.Pods {
				fmt.Fprintf(w, "%s/%s/%s\t%s\t%s\t%s\n", p.Cluster, p.Namespace, p.Name, p.Node, strings.Join(p.IPs, ","), cli.YesNo(p.Ready))
			}
			if len(s.Services) > 0 {
				fmt.Fprint(w, "\nSERVICE\tCLUSTER-IP\tREADY\n")
			}
			for _, svc := range s.Services {
				fmt.Fprintf(w, "%s/%s/%s\t%s\t%d/%d\n", svc.Cluster, svc.Namespace, svc.Name,
					cmp.Or(strings.Join(svc.ClusterIPs, ","), "None"), svc.Ready, svc.Endpoints)
			}
			for i, text := range s.Waiting {
				if i == 0 {
					fmt.Fprint(w, "\nNOT READY\n")
				}
				fmt.Fprintln(w, text)
			}
			return w.Flush()
		},
	}
	cli.OutputFlag(cmd, false, &output, "text", "json")
	return cmd
}

// reconcilerLines returns the failure of the last pass and its diagnostics. It omits a failure with
// the same text as a diagnostic.
func reconcilerLines(failure string, list diag.List) []string {
	var lines []string
	for _, d := range list {
		lines = append(lines, d.Error())
	}
	if failure != "" && !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(failure, line) }) {
		lines = append([]string{failure}, lines...)
	}
	return lines
}

func agentText(a lab.Agent) string {
	switch {
	case a.Stopped:
		return "stopped"
	case a.PID == 0:
		return "-"
	case a.Ready:
		return fmt.Sprintf("ready (%d)", a.PID)
	default:
		return fmt.Sprintf("not ready (%d)", a.PID)
	}
}
