// Package manpage writes the manual pages of a command line, one for each command, as
// man(7) reads them. Descriptions are plain text that is laid out by hand; cobra's own
// generator takes them for Markdown, which loses <name> and indentation.
package manpage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// Command gives the hidden command that writes the pages of the program it is added to.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages into a folder",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			for name, page := range Generate(cmd.Root()) {
				if err := os.WriteFile(filepath.Join(args[0], name), page, 0o644); err != nil {
					return fmt.Errorf("write manual page: %w", err)
				}
			}
			return nil
		},
	}
}

// Generate gives the page of every command that help lists, by the name of its file. The same
// program gives the same bytes.
func Generate(root *cobra.Command) map[string][]byte {
	out := map[string][]byte{}
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		out[pageName(cmd)+".1"] = page(root, cmd)
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && c.Name() != "help" {
				add(c)
			}
		}
	}
	root.InitDefaultCompletionCmd()
	add(root)
	return out
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func page(root, cmd *cobra.Command) []byte {
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q \"1\" \"\" %q %q\n", strings.ToUpper(pageName(cmd)), root.Name()+" "+root.Version, root.Name())
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(pageName(cmd)), escape(cmd.Short))
	section := func(title, text string) {
		if text = strings.Trim(text, "\n"); text != "" {
			fmt.Fprintf(&b, ".SH %s\n.nf\n%s\n.fi\n", title, escape(text))
		}
	}
	section("SYNOPSIS", cmd.UseLine())
	section("DESCRIPTION", cmd.Long)
	section("OPTIONS", cmd.NonInheritedFlags().FlagUsages())
	section("OPTIONS OF ALL COMMANDS", cmd.InheritedFlags().FlagUsages())
	section("EXAMPLES", cmd.Example)
	var also []string
	if cmd.HasParent() {
		also = append(also, pageName(cmd.Parent())+"(1)")
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			also = append(also, pageName(c)+"(1)")
		}
	}
	if len(also) > 0 {
		fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", escape(strings.Join(also, ", ")))
	}
	return []byte(b.String())
}

// escape keeps text from being taken for requests of roff: a backslash anywhere, a dot or
// an apostrophe at the beginning of a line. A minus is one that can be copied.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
