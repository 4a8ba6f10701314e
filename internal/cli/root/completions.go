package root

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/topofile"
)

// valueCompletions say what a shell offers for a flag, by its name, or by the names of a
// command and the flag where a command differs. A flag that is not here takes a file.
func valueCompletions() map[string]cobra.CompletionFunc {
	out := map[string]cobra.CompletionFunc{
		"color":      cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp),
		"log-format": cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp),

		"against":        baseline.CompleteRefOrFolder,
		"diff":           baseline.CompleteRefOrFolder,
		"focus":          cli.Complete(clusterselect.CompletionNames),
		"branch":         cli.Complete(baseline.BranchNames),
		"ref":            cli.Complete(baseline.BranchNames),
		"publish-branch": cli.Complete(baseline.BranchNames),
	}
	for _, name := range []string{"repo", "publish-repo", "tree", "out", "with-keys", "cache", "lab", "dir", "workloads", "fabric", "state"} {
		out[name] = cli.Folders
	}
	out["gather out"] = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	out["signers"] = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	// Nothing can be offered for these, and files least of all.
	for _, name := range []string{
		"accept-commit", "address", "author-email", "author-name", "clusters", "drop-before", "follow", "for", "from", "git-username", "host", "ignore", "image",
		"interval", "listen", "move", "name", "number", "path", "port", "recipient", "since", "streams", "timeout", "workers",
	} {
		out[name] = cobra.NoFileCompletions
	}
	return out
}

// addCompletions lets shells complete the values of flags and the arguments of all
// commands that do not say themselves what they take.
func addCompletions(root *cobra.Command) {
	values := valueCompletions()
	arguments := map[string]cobra.CompletionFunc{
		"init":          cli.FirstArgument(cli.Folders),
		"uninstall":     installed,
		"leave":         cli.FirstArgument(cli.Complete(clusterselect.CompletionNames)),
		"rollback":      cli.FirstArgument(cli.Complete(baseline.PublishedCommits)),
		"explain":       fromAndTo,
		"benchmark":     twoClusters,
		"keys root":     cli.FirstArgument(nil),
		"keys identity": cli.FirstArgument(nil),
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := strings.TrimPrefix(cmd.CommandPath(), "hawser ")
		flag := func(f *pflag.Flag) {
			complete := values[path+" "+f.Name]
			if complete == nil {
				complete = values[f.Name]
			}
			if _, has := cmd.GetFlagCompletionFunc(f.Name); !has && complete != nil {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // the flag exists, and has none
			}
		}
		cmd.Flags().VisitAll(flag)
		cmd.PersistentFlags().VisitAll(flag)
		switch {
		case cmd.ValidArgsFunction != nil || cmd.DisableFlagParsing:
		case arguments[path] != nil:
			cmd.ValidArgsFunction = arguments[path]
		case strings.Contains(cmd.Use, "[FILE|DIR"):
			cmd.ValidArgsFunction = cli.FirstArgument(topofile.CompleteFile)
		default:
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(root)
}

// twoClusters completes two different clusters.
func twoClusters(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	left := slices.DeleteFunc(clusterselect.CompletionNames(cmd, nil, word), func(name string) bool { return slices.Contains(args, name) })
	return left, cobra.ShellCompDirectiveNoFileComp
}

// installed completes clusters to take Hawser out of: the topology need not have them any
// more.
func installed(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, name := range append(clusterselect.CompletionNames(cmd, nil, word), clusterselect.ContextNames(cmd, nil, "")...) {
		if !slices.Contains(out, name) && !slices.Contains(args, name) {
			out = append(out, name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// fromAndTo completes who asks, a cluster, and what for, an export's name.
func fromAndTo(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return clusterselect.CompletionNames(cmd, nil, word), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	case 1:
		var out []string
		for _, id := range topofile.ExportNames(cmd, nil, word) {
			namespace, name, _ := strings.Cut(id, "/")
			out = append(out, name+"."+namespace)
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
