//go:build linux

package lab

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/lab"
)

func newLabFaultCommand(f *labFlags) *cobra.Command {
	var kinds strings.Builder
	for _, k := range lab.FaultKinds() {
		fmt.Fprintf(&kinds, "  %-16s %s\n", k[0], k[1])
	}
	var agent string
	cmd := &cobra.Command{
		Use:   "fault KIND [CLUSTER/NODE | CLUSTER] [wan|lan] [in|out] [VALUE]",
		Short: "Inject a fault into the lab, or clear it",
		Long: "Inject a fault into the lab, or clear it. Links are wan (the default on a gateway) and\n" +
			"lan. in is what the node receives, out what it sends.\n\n" + kinds.String() +
			"\n  hawser lab fault cut g1/g1-a\n  hawser lab fault loss g1/g1-a wan out 5%\n  hawser lab fault stop-sync g2",
		Example:           `  hawser lab fault cut g1/g1-gw wan`,
		ValidArgsFunction: f.completeFault,
		Args:              cobra.RangeArgs(1, 5),
		RunE: func(cmd *cobra.Command, args []string) error {
			fault := lab.Fault{Kind: args[0]}
			rest := args[1:]
			if len(rest) > 0 {
				fault.Target, rest = rest[0], rest[1:]
			}
			if len(rest) > 0 && (rest[0] == lab.SideWAN || rest[0] == lab.SideLAN) {
				fault.Side, rest = rest[0], rest[1:]
			}
			if len(rest) > 0 && (rest[0] == lab.DirectionIn || rest[0] == lab.DirectionOut) {
				fault.Direction, rest = rest[0], rest[1:]
			}
			if len(rest) > 0 {
				fault.Value, rest = rest[0], rest[1:]
			}
			if len(rest) > 0 {
				return fmt.Errorf("%q: one argument too many (see %s --help)", rest[0], cmd.CommandPath())
			}
			if agent != "" {
				if fault.Kind != "upgrade-agent" {
					return fmt.Errorf("fault %s has no --agent", fault.Kind)
				}
				path, err := filepath.Abs(agent)
				if err != nil {
					return fmt.Errorf("find agent: %w", err)
				}
				fault.Value = path
			}
			c, err := f.client()
			if err != nil {
				return err
			}
			return c.Fault(cmd.Context(), fault)
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "program that upgrade-agent starts")
	return cmd
}

// completeFault completes the kind, then the target, then the side and direction.
func (f *labFlags) completeFault(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var out []string
	switch len(args) {
	case 0:
		for _, k := range lab.FaultKinds() {
			out = append(out, k[0]+"\t"+k[1])
		}
	case 1:
		of := nodesOf
		if strings.HasSuffix(args[0], "-sync") {
			of = clustersOf
		}
		out = f.candidates(cmd, of)
	default:
		out = []string{lab.SideWAN, lab.SideLAN, lab.DirectionIn, lab.DirectionOut}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
