package root

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/topofile"
)

// valueCompletions returns the completions of flag values. Keys are flags, or a command and a flag
// if the command differs. A flag without an entry completes files.
func valueCompletions() map[string]cobra.CompletionFunc {
	out := map[string]cobra.CompletionFunc{
		"color":      cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp),
		"log-format": cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp),

		"against":        baseline.CompleteRefOrDir,
		"diff":           baseline.CompleteRefOrDir,
		"focus":          cli.Complete(clusterselect.CompletionNames),
		"branch":         cli.Complete(baseline.BranchNames),
		"ref":            cli.Complete(baseline.BranchNames),
		"publish-branch": cli.Complete(baseline.BranchNames),
	}
	for _, name := range []string{"repo", "publish-repo", "tree", "out", "with-keys", "cache", "lab", "dir", "workloads", "fabric", "state"} {
		out[name] = cli.CompleteDirs
	}
	for _, flag := range []string{"join from", "join out"} {
		out[flag] = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	}
	out["gather out"] = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	out["verify junit"] = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	out["signers"] = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	// These values have no completions, and are not files.
	for _, name := range []string{
		"accept-commit", "address", "author-email", "author-name", "clusters", "clusterset", "drop-before", "follow", "for", "from", "git-username", "host", "ignore", "image",
		"interval", "listen", "move", "name", "number", "path", "port", "recipient", "since", "streams", "timeout", "workers",
	} {
		out[name] = cobra.NoFileCompletions
	}
	return out
}

// addCompletions registers valueCompletions. It completes the arguments of commands that lack a
// ValidArgsFunction: a topology file if Use has [FILE|DIR, otherwise nothing.
func addCompletions(root *cobra.Command) {
	values := valueCompletions()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := strings.TrimPrefix(cmd.CommandPath(), "hawser ")
		flag := func(f *pflag.Flag) {
			complete := values[path+" "+f.Name]
			if complete == nil {
				complete = values[f.Name]
			}
			if _, exists := cmd.GetFlagCompletionFunc(f.Name); !exists && complete != nil {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // the flag exists, and has no completion
			}
		}
		cmd.Flags().VisitAll(flag)
		cmd.PersistentFlags().VisitAll(flag)
		switch {
		case cmd.ValidArgsFunction != nil || cmd.DisableFlagParsing:
		case strings.Contains(cmd.Use, "[FILE|DIR"):
			cmd.ValidArgsFunction = cli.FirstArgument(topofile.CompleteFile)
		default:
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(root)
}
