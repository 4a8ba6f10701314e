package root

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
)

// TestExamples checks that every command without subcommands has examples, and that each example
// uses an existing command and existing flags.
func TestExamples(t *testing.T) {
	t.Parallel()
	seen := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			walk(child)
		}
		if cmd.Hidden || cmd.HasSubCommands() && cmd.HasParent() || strings.Contains(cmd.CommandPath(), "completion") {
			return
		}
		if cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			words := strings.Fields(strings.NewReplacer(`cd "$(`, "", `)"`, "").Replace(line))
			if len(words) == 0 || words[0] != "hawser" {
				t.Errorf("%s: %q is no command line of hawser", cmd.CommandPath(), line)
				continue
			}
			root := newRoot(&cli.Env{Version: "dev"})
			command, rest, err := root.Find(words[1:])
			if err != nil || cmd.HasParent() && command.CommandPath() != cmd.CommandPath() && !strings.Contains(line, "--version") {
				t.Errorf("%s: %q is of %s: %v", cmd.CommandPath(), line, command.CommandPath(), err)
				continue
			}
			command.InitDefaultVersionFlag()
			if err := command.ParseFlags(rest); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			} else if err := command.ValidateArgs(command.Flags().Args()); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			}
			seen++
		}
	}
	walk(newRoot(&cli.Env{Version: "dev"}))
	if seen < 30 {
		t.Errorf("only %d examples were seen", seen)
	}
}
