// Package doccheck checks that documents cite commands, flags, tests, files and functions that
// exist.
package doccheck

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// CheckAllDocs runs CheckCommands on all documents of a repository, and returns the problems with
// file and line. It fails if there are no documents.
func CheckAllDocs(root *cobra.Command, repository string) ([]string, error) {
	pages, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		return nil, fmt.Errorf("find documents in %s/docs: none there (%v)", repository, err)
	}
	for _, page := range []string{"README.md", "CONTRIBUTING.md", "e2e/README.md"} {
		pages = append(pages, filepath.Join(repository, page))
	}
	var out []string
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, fmt.Errorf("read document: %w", err)
		}
		for _, problem := range CheckCommands(root, string(text)) {
			out = append(out, page+":"+problem)
		}
	}
	return out, nil
}

// CheckCommands returns the commands and flags in a text that the program does not have, with line
// numbers. It reads code lines (four spaces, as in Markdown) that begin with the program's name,
// and text in backquotes.
func CheckCommands(root *cobra.Command, text string) []string {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var out []string
	number := 0
	for line := range strings.Lines(text) {
		number++
		for _, command := range commands(root.Name(), line) {
			if problem := checkWords(root, strings.Fields(command)[1:]); problem != "" {
				out = append(out, fmt.Sprintf("%d: %s: %s", number, command, problem))
			}
		}
	}
	return out
}

// commands returns the command lines of a program in a line, without comments and shell operators.
func commands(program, line string) []string {
	var out []string
	code := regexp.MustCompile(`^ {4,}(?:\$ )?(?:[A-Z_]+=\S+ )*(?:bin/)?(` + program + ` .*)`)
	if found := code.FindStringSubmatch(line); found != nil {
		out = append(out, found[1])
	}
	for _, found := range regexp.MustCompile("`("+program+" [^`]+)`").FindAllStringSubmatch(line, -1) {
		out = append(out, found[1])
	}
	end := regexp.MustCompile(`\s+#|\s+[|>&]|;`)
	for i, command := range out {
		if at := end.FindStringIndex(command); at != nil {
			out[i] = command[:at[0]]
		}
	}
	return out
}

// checkWords returns an error text for the first subcommand or flag that cmd does not have; empty
// if it has all.
func checkWords(cmd *cobra.Command, words []string) string {
	for len(words) > 0 && subcommand(cmd, words[0]) != nil {
		cmd, words = subcommand(cmd, words[0]), words[1:]
	}
	if cmd.HasAvailableSubCommands() && len(words) > 0 && regexp.MustCompile(`^[a-z]+$`).MatchString(words[0]) {
		return "there is no command " + words[0]
	}
	for _, word := range words {
		if word == "--" {
			break
		}
		flag := regexp.MustCompile(`^\[?(--?[a-z][a-z-]*)`).FindStringSubmatch(word)
		if flag != nil && !hasFlag(cmd, flag[1]) {
			return "there is no flag " + flag[1]
		}
	}
	return ""
}

func subcommand(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

func hasFlag(cmd *cobra.Command, flag string) bool {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	if name, long := strings.CutPrefix(flag, "--"); long {
		return cmd.Flags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil
	}
	name := flag[1:]
	return len(name) == 1 && (cmd.Flags().ShorthandLookup(name) != nil || cmd.InheritedFlags().ShorthandLookup(name) != nil)
}
