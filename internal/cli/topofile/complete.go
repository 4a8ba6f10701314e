package topofile

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/load"
)

// CompleteFile completes the file of a topology.
func CompleteFile(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

// CompletionPath returns the path of the topology that a command line selects. It is empty for
// stdin, which the shell cannot read.
func CompletionPath(cmd *cobra.Command, args []string) string {
	file := ""
	if f := cmd.Flag("file"); f != nil {
		file = f.Value.String()
	}
	if len(args) > 0 && strings.Contains(cmd.Use, "[FILE|DIR") {
		file = args[0]
	}
	switch file {
	case "-":
		return ""
	case "":
		return reconciler.TopologyFile
	}
	return file
}

// CompletionSet returns the topology that a command line selects, as far as it can be decoded,
// because the file may be incomplete.
func CompletionSet(cmd *cobra.Command, args []string) *schema.ClusterSet {
	t, err := Open(CompletionPath(cmd, args))
	if err != nil {
		return &schema.ClusterSet{}
	}
	set, _, _ := load.Decode(t.Path, t.Raw)
	return set
}

// ExportNames returns the exports of the topology, as NAMESPACE/NAME.
func ExportNames(cmd *cobra.Command, args []string, _ string) []string {
	var out []string
	for _, e := range CompletionSet(cmd, args).Spec.Exports {
		if !slices.Contains(out, e.ID()) {
			out = append(out, e.ID())
		}
	}
	return out
}

// GatewayNames returns the gateways of the topology, as CLUSTER/GATEWAY.
func GatewayNames(cmd *cobra.Command, args []string, _ string) []string {
	var out []string
	for _, c := range CompletionSet(cmd, args).Spec.Clusters {
		for _, g := range c.AllGateways() {
			out = append(out, c.Name+"/"+g.Name)
		}
	}
	return out
}
