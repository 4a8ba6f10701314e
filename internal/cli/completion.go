package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// names returns the candidates of a completion.
type names func(cmd *cobra.Command, args []string, word string) []string

// Complete completes one value.
func Complete(of names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		return of(cmd, args, word), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteList completes the last of several comma-separated values. It omits values that the list
// already has.
func CompleteList(of names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		at := strings.LastIndex(word, ",") + 1
		have := strings.Split(word[:at], ",")
		directive := cobra.ShellCompDirectiveNoFileComp
		var out []string
		for _, name := range of(cmd, args, word[at:]) {
			if slices.Contains(have, name) {
				continue
			}
			if strings.HasSuffix(name, "=") {
				directive |= cobra.ShellCompDirectiveNoSpace
			}
			out = append(out, word[:at]+name)
		}
		return out, directive
	}
}

// CompleteFlag sets the completion of a flag. It panics if cmd lacks the flag or the flag has a
// completion.
func CompleteFlag(cmd *cobra.Command, name string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err)
	}
}

// FirstArgument completes the first argument; nil completes files.
func FirstArgument(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) > 0:
			return nil, cobra.ShellCompDirectiveNoFileComp
		case complete == nil:
			return nil, cobra.ShellCompDirectiveDefault
		}
		return complete(cmd, args, word)
	}
}

// CompleteDirs completes directories.
func CompleteDirs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}
