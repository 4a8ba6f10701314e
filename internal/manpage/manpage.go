// Package manpage writes a program's manual pages, and its commands as a Markdown document.
package manpage

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// Command returns the hidden command that writes the manual pages of its root command.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages into a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			return writePages(cmd.Root(), args[0])
		},
	}
}

// writePages writes one page per command into dir, with the date of SOURCE_DATE_EPOCH or today's.
// It modifies the texts of the commands.
func writePages(root *cobra.Command, dir string) error {
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true // the tag contains the current date
	var escape func(*cobra.Command)
	escape = func(c *cobra.Command) {
		c.Use, c.Short, c.Long = asMarkdown(c.Use), asMarkdown(c.Short), asMarkdown(c.Long)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = asMarkdown(f.Usage) })
		for _, sub := range c.Commands() {
			escape(sub)
		}
	}
	escape(root)
	header := &doc.GenManHeader{Section: "1", Source: root.Name() + " " + root.Version, Manual: root.Name()}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return fmt.Errorf("write manual pages: %w", err)
	}
	return nil
}

// asMarkdown converts plain text to Markdown, which cobra expects. It keeps <name> and marks
// indented lines as code.
func asMarkdown(text string) string {
	text = strings.NewReplacer(`\`, `\\`, "<", `\<`, "*", `\*`, "_", `\_`).Replace(text)
	return strings.ReplaceAll(text, "\n  ", "\n      ")
}
