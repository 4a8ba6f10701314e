// Package cli has the common parts of all commands of hawser: the environment of a run, errors with
// exit codes, output formats, tables and completion.
package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
)

// Env is the environment of a run of hawser: its streams and the global flags.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	Color    string
	Version  string     // of the program
	File     string     // topology file of -f
	mu       sync.Mutex // guards LogCluster
}

// Exit codes, the same for every command (docs/cli.md).
const (
	exitNegative = 1 // negative result: findings, changes, a stale lock, a refused commit
	exitError    = 2 // unknown result: the command failed
)

// ExitError ends a command with exit code 1. Msg may be empty if the command has printed its
// result.
type ExitError struct{ Msg string }

func (a ExitError) Error() string { return a.Msg }

// FindingsError ends a command with exit code 1 because of findings.
type FindingsError struct {
	List  diag.List
	Files map[string][]byte // contents of the files, by name
}

func (f FindingsError) Error() string {
	return humanize.Plural(len(f.List), "finding") + " in the topology"
}

// Exit prints the error of a command and returns the exit code.
func (e *Env) Exit(err error) int {
	var exitErr ExitError
	var findings FindingsError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &findings):
		e.Findings(findings.List, findings.Files)
		return exitNegative
	case errors.As(err, &exitErr):
		if exitErr.Msg != "" {
			_, _ = fmt.Fprintln(e.Err, diag.Line(exitErr.Msg))
		}
		return exitNegative
	default:
		_, _ = fmt.Fprintln(e.Err, "error:", diag.Line(err.Error()))
		return exitError
	}
}

// Findings prints findings to stderr.
func (e *Env) Findings(list diag.List, sources map[string][]byte) {
	_ = diag.Print(e.Err, list, sources, e.Colored(e.Err))
}

// LogCluster prints a line about a cluster to stderr. It may be called concurrently.
func (e *Env) LogCluster(cluster, what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, _ = fmt.Fprintf(e.Err, "%s: %s\n", cluster, what)
}

// NoVerb returns an error for an unknown subcommand. The error suggests a similar one.
func NoVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2 // edit distance
	if suggestions := cmd.SuggestionsFor(args[0]); len(suggestions) > 0 {
		return fmt.Errorf("unknown command %q for %q: did you mean %s?", args[0], cmd.CommandPath(), strings.Join(suggestions, " or "))
	}
	return fmt.Errorf("unknown command %q for %q (%s --help lists the commands)", args[0], cmd.CommandPath(), cmd.CommandPath())
}
