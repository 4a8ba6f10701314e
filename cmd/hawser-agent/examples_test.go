package main

import (
	"strings"
	"testing"
)

// TestExamples checks that every command has examples, and that each example uses an existing
// command and existing flags.
func TestExamples(t *testing.T) {
	t.Parallel()
	root := newRoot()
	for _, cmd := range append(root.Commands(), root) {
		if cmd.Hidden || cmd.Name() == "completion" || cmd.Name() == "help" {
			continue
		}
		if cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			line, _, _ = strings.Cut(line, "&&")
			words := strings.Fields(line)
			if len(words) == 0 || words[0] != "hawser-agent" {
				t.Errorf("%s: %q is no command line of hawser-agent", cmd.CommandPath(), line)
				continue
			}
			fresh := newRoot()
			command, rest, err := fresh.Find(words[1:])
			if err != nil || cmd.HasParent() && command.Name() != cmd.Name() && !strings.Contains(line, "--version") {
				t.Errorf("%s: %q is of %s: %v", cmd.CommandPath(), line, command.CommandPath(), err)
				continue
			}
			command.InitDefaultVersionFlag()
			if err := command.ParseFlags(rest); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			} else if err := command.ValidateArgs(command.Flags().Args()); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			}
		}
	}
}
