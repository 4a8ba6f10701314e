//go:build linux

package lab

import (
	"slices"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/lab"
)

// candidates queries the lab for completion candidates; none if no lab is running.
func (f *labFlags) candidates(cmd *cobra.Command, list func(lab.Status) []string) []string {
	c, err := f.client()
	if err != nil {
		return nil
	}
	s, err := c.Status(cmd.Context())
	if err != nil {
		return nil
	}
	return list(s)
}

// complete completes the first argument with candidates of the lab and extra. Further
// arguments are a program.
func (f *labFlags) complete(list func(lab.Status) []string, extra ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return append(f.candidates(cmd, list), extra...), cobra.ShellCompDirectiveNoFileComp
	}
}

func clustersOf(s lab.Status) []string {
	var out []string
	for _, n := range s.Nodes {
		out = append(out, n.Cluster)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func nodesOf(s lab.Status) []string {
	var out []string
	for _, n := range s.Nodes {
		out = append(out, n.Cluster+"/"+n.Name)
	}
	return out
}

func podsOf(s lab.Status) []string {
	var out []string
	for _, p := range s.Pods {
		out = append(out, p.Cluster+"/"+p.Namespace+"/"+p.Name)
	}
	return out
}
