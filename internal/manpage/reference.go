package manpage

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/markdown"
)

// Reference returns a Markdown section for each command of root: its help text, usage, examples and
// flags. It leaves out hidden commands and the flags that every command has.
func Reference(root *cobra.Command) string {
	var b strings.Builder
	var section func(*cobra.Command)
	section = func(c *cobra.Command) {
		if c.Runnable() && c != root {
			writeSection(&b, c)
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				section(sub)
			}
		}
	}
	section(root)
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func writeSection(b *strings.Builder, c *cobra.Command) {
	_, _ = fmt.Fprintf(b, "## %s\n\n%s.\n\n%s\n", c.CommandPath(), c.Short, code(c.UseLine()))
	if c.Long != "" && c.Long != c.Short {
		_, _ = fmt.Fprintf(b, "%s\n\n", asMarkdown(c.Long))
	}
	if c.Example != "" {
		_, _ = fmt.Fprintf(b, "Examples:\n\n%s\n", code(c.Example))
	}
	c.InitDefaultHelpFlag()
	c.Flags().Lookup("help").Hidden = true
	if flags := c.NonInheritedFlags(); flags.HasAvailableFlags() {
		_, _ = fmt.Fprintf(b, "Flags:\n\n%s\n", code(flags.FlagUsagesWrapped(markdown.Columns-indent)))
	}
}

// indent is the indentation of a line of code, in columns.
const indent = 4

// code returns text as an indented Markdown code block. Relative indentation does not change.
func code(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			line = strings.Repeat(" ", indent) + strings.TrimPrefix(line, "  ")
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
