package root

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hawser.dev/hawser/internal/cli"
)

// TestEveryFlagCompletes checks that flags complete file names only if their value is a file.
func TestEveryFlagCompletes(t *testing.T) {
	t.Parallel()
	files := []string{
		"agent", "filename", "git-token-file", "identity", "key", "kubeconfig", "out", "root-identity", "root-key", "sign-openpgp",
		"socket", "ssh-key", "ssh-known-hosts", "token-file", "trust", "underlay", "webhook-secret",
	}
	used := map[string]bool{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		check := func(f *pflag.Flag) {
			used[f.Name] = true
			if f.NoOptDefVal != "" || slices.Contains(files, f.Name) {
				return
			}
			if _, has := cmd.GetFlagCompletionFunc(f.Name); !has {
				t.Errorf("%s --%s has no completion: add it to valueCompletions", cmd.CommandPath(), f.Name)
			}
		}
		cmd.Flags().VisitAll(check)
		cmd.PersistentFlags().VisitAll(check)
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(newRoot(&cli.Env{Version: "dev"}))
	for name := range valueCompletions() {
		if words := strings.Fields(name); !used[words[len(words)-1]] {
			t.Errorf("valueCompletions has --%s, which no command has", name)
		}
	}
}
