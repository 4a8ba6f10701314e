package root

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
)

// TestHelp checks that every command is in a group of hawser --help, and that its short help is one
// phrase of at most 60 characters.
func TestHelp(t *testing.T) {
	t.Parallel()
	root := newRoot(&cli.Env{Version: "dev"})
	for _, c := range root.Commands() {
		if c.GroupID == "" && !c.Hidden && c.Name() != "version" {
			t.Errorf("%s is in no group", c.Name())
		}
	}
	var check func(*cobra.Command)
	check = func(c *cobra.Command) {
		first, _ := utf8.DecodeRuneInString(c.Short)
		if n := utf8.RuneCountInString(c.Short); n == 0 || n > 60 || c.Short[len(c.Short)-1] == '.' || !unicode.IsUpper(first) {
			t.Errorf("%s: short help %q (%d characters)", c.CommandPath(), c.Short, n)
		}
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(root)
}
