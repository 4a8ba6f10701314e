package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/hardening"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/internal/manpage"
	"hawser.dev/hawser/schema/syntax"
)

// Exit codes, the same for every command (docs/cli.md).
const (
	exitNegative = 1 // the answer is no: findings, changes, a stale lock, a refused commit
	exitError    = 2 // the command could not do its work
)

// answer ends a command with exitNo. Its text may be empty: then all was
// printed already.
type answer struct{ text string }

func (a answer) Error() string { return a.text }

// found ends a command because the topology has findings.
type found struct {
	list    diag.List
	sources map[string][]byte // text of the files, by name
}

func (f found) Error() string { return humanize.Plural(len(f.list), "finding") + " in the topology" }

// app is what every command shares.
type app struct {
	in       io.Reader
	out, err io.Writer
	color    string
	file     string     // of the topology, as -f names it
	mu       sync.Mutex // of progress that several goroutines tell
}

func run(args []string) int {
	ctx := context.Background()
	// A signal that is caught before lab nsexec becomes another program would never reach that.
	if !slices.Equal(args[:min(len(args), 2)], []string{"lab", "nsexec"}) {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go logs what it gives as an error, too
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	root := newRoot(a)
	root.SetArgs(args)
	return a.exit(root.ExecuteContext(ctx))
}

// exit prints what ended a command and gives its exit code.
func (a *app) exit(err error) int {
	var no answer
	var findings found
	switch {
	case err == nil:
		return 0
	case errors.As(err, &findings):
		a.printFindings(findings.list, findings.sources)
		return exitNegative
	case errors.As(err, &no):
		if no.text != "" {
			_, _ = fmt.Fprintln(a.err, diag.Line(no.text))
		}
		return exitNegative
	default:
		_, _ = fmt.Fprintln(a.err, "error:", diag.Line(err.Error()))
		return exitError
	}
}

// printFindings writes findings to stderr. An error in writing them has nowhere
// to go.
func (a *app) printFindings(list diag.List, sources map[string][]byte) {
	_ = diag.Print(a.err, list, sources, a.colored(a.err))
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "hawser",
		Short: "Connect clusters into one clusterset from one file in git",
		Long: `Hawser connects Kubernetes clusters and Linux hosts into one clusterset from
one topology file in git.

Exit codes: 0 done, 1 the answer is no (findings, changes, a stale lock, a
refused commit), 2 the command could not do its work.`,
		Example: `  hawser init --clusters fra,sin --with-keys keys/
  hawser validate
  hawser diff`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
		Args:          noVerb,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate(thisBuild().String())
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetIn(a.in)
	root.PersistentFlags().StringVar(&a.color, "color", "auto", "colours: auto, always or never")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		// The lab runs other people's programs, which may want core dumps, and its keys are worth nothing.
		if !strings.HasPrefix(cmd.CommandPath(), "hawser lab") {
			if err := hardening.HardenProcess(); err != nil {
				return err
			}
		}
		if f := cmd.Flag("output"); f != nil && f.Annotations[formatsOf] != nil {
			if err := checkFormat(f.Value.String(), f.Annotations[formatsOf]); err != nil {
				return err
			}
		}
		switch a.color {
		case "auto", "always", "never":
			return nil
		}
		return fmt.Errorf("--color %q: it is auto, always or never", a.color)
	}
	root.SetFlagErrorFunc(suggestFlag)
	root.AddCommand(
		newInitCommand(a), newDiscoverCommand(a), newJoinCommand(a), newLeaveCommand(a), newPreflightCommand(a), newBenchmarkCommand(a),
		newValidateCommand(a), newFmtCommand(a), newAllocateCommand(a), newRenderCommand(a), newDiffCommand(a), newFirewallCommand(a), newExplainCommand(a), newGraphCommand(a),
		newBootstrapCommand(a), newApplyCommand(a), newUninstallCommand(a),
		newStatusCommand(a), newVerifyCommand(a), newDiagnoseCommand(a), newGatherCommand(a), newReportCommand(a), newUICommand(a),
		newReconcileCommand(a), newHistoryCommand(a), newRollbackCommand(a), newKeysCommand(a), newShowCommand(a), newLabCommand(), newVersionCommand(a), manpage.Command(),
	)
	addCompletions(root)
	return root
}

// suggestFlag says which flag is meant by one that there is not.
func suggestFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1 { // -x stands for nothing else
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if near := syntax.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			return fmt.Errorf("%w: did you mean --%s?", err, near)
		}
	}
	return fmt.Errorf("%w (%s --help lists the flags)", err, cmd.CommandPath())
}

// noVerb refuses words where only commands can stand, and says which command is meant.
func noVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2 // letters that differ
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("unknown command %q for %q: did you mean %s?", args[0], cmd.CommandPath(), strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %q for %q (%s --help lists the commands)", args[0], cmd.CommandPath(), cmd.CommandPath())
}
