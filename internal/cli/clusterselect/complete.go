package clusterselect

import (
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/install/apply"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/kubeclient"
)

// CompletionNames returns the clusters of the topology or of --tree. If both are empty, it returns
// the contexts of the kubeconfig.
func CompletionNames(cmd *cobra.Command, args []string, word string) []string {
	if f := cmd.Flag("tree"); f != nil && f.Value.String() != "" {
		dir, err := topofile.ReadRendered(f.Value.String())
		if err != nil {
			return nil
		}
		return apply.Clusters(dir.Tree)
	}
	out := topofile.CompletionSet(cmd, args).ClusterNames()
	if len(out) == 0 && cmd.Flag("context") != nil {
		return ContextNames(cmd, args, word)
	}
	return out
}

// ContextNames returns the contexts of the kubeconfig. It also completes after NAME=.
func ContextNames(cmd *cobra.Command, _ []string, word string) []string {
	var access kubeclient.Kubeconfig
	access.Kubeconfigs, _ = cmd.Flags().GetStringArray("kubeconfig") // nil if cmd lacks the flag: the default applies
	known, err := access.Known()
	if err != nil {
		return nil
	}
	cluster, _, named := strings.Cut(word, "=")
	if !named {
		return known
	}
	for i := range known {
		known[i] = cluster + "=" + known[i]
	}
	return known
}

// clusterContexts returns CLUSTER= for each cluster, and the contexts after the equals sign.
func clusterContexts(cmd *cobra.Command, args []string, word string) []string {
	if strings.Contains(word, "=") {
		return ContextNames(cmd, args, word)
	}
	out := CompletionNames(cmd, args, word)
	for i := range out {
		out[i] += "="
	}
	return out
}
