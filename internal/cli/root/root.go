// Package root assembles the command hawser from its command groups.
package root

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/edit"
	"hawser.dev/hawser/internal/cli/install"
	"hawser.dev/hawser/internal/cli/keys"
	"hawser.dev/hawser/internal/cli/lab"
	"hawser.dev/hawser/internal/cli/observe"
	"hawser.dev/hawser/internal/cli/offline"
	"hawser.dev/hawser/internal/cli/publish"
	"hawser.dev/hawser/internal/cli/ui"
	"hawser.dev/hawser/internal/hardening"
	"hawser.dev/hawser/internal/manpage"
	"hawser.dev/hawser/schema/syntax"
)

// Run executes a command line and returns the exit code.
func Run(version string, args []string) int {
	ctx := context.Background()
	// A caught signal would not reach the program that replaces lab nsexec.
	if !slices.Equal(args[:min(len(args), 2)], []string{"lab", "nsexec"}) {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go also logs the errors that it returns
	env := &cli.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Version: version}
	root := newRoot(env)
	root.SetArgs(args)
	if filepath.Base(os.Args[0]) == "kubectl-hawser" {
		nameAsPlugin(root)
	}
	return env.Exit(root.ExecuteContext(ctx))
}

// exampleLine matches the start of a command line in an example.
var exampleLine = regexp.MustCompile(`(?m)^  hawser\b`)

// nameAsPlugin shows "kubectl hawser" in usage lines, examples and errors, because users of the
// plugin type it.
func nameAsPlugin(root *cobra.Command) {
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl hawser"}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.Example = exampleLine.ReplaceAllString(c.Example, "  kubectl hawser")
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(root)
}

func newRoot(env *cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "hawser",
		Short: "Connect clusters into one clusterset from one file in git",
		Long: `Hawser connects Kubernetes clusters and Linux hosts into one clusterset from
one topology file in git.

The guide is docs/guide.md of the release archive (/usr/share/doc/hawser of the package).

Exit codes: 0 fine; 1 not fine, such as findings or changes; 2 unknown, or error.`,
		Example: `  hawser init --clusters fra,sin --with-keys keys/
  hawser validate
  hawser diff`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       env.Version,
		Args:          cli.NoVerb,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate(thisBuild(env.Version).String())
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	root.SetIn(env.In)
	root.PersistentFlags().StringVar(&env.Color, "color", "auto", "colours: auto, always or never")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		// The lab runs users' programs, which may need core dumps, and its keys protect
		// nothing.
		if !strings.HasPrefix(cmd.CommandPath(), root.CommandPath()+" lab") {
			if err := hardening.HardenProcess(); err != nil {
				return err
			}
		}
		if f := cmd.Flag("output"); f != nil && f.Annotations[cli.FormatsAnnotation] != nil {
			if err := cli.CheckFormat(f.Value.String(), f.Annotations[cli.FormatsAnnotation]); err != nil {
				return err
			}
		}
		switch env.Color {
		case "auto", "always", "never":
			return nil
		}
		return fmt.Errorf("--color %q: it is auto, always or never", env.Color)
	}
	root.SetFlagErrorFunc(suggestFlag)
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"start", "Start:", []*cobra.Command{
			edit.NewInitCommand(env), edit.NewDiscoverCommand(env), edit.NewJoinCommand(env), edit.NewLeaveCommand(env),
			install.NewPreflightCommand(env), install.NewBootstrapCommand(env),
		}},
		{"change", "Change:", []*cobra.Command{
			edit.NewValidateCommand(env), edit.NewFmtCommand(env), edit.NewAllocateCommand(env),
			edit.NewExportCommand(env), edit.NewUnexportCommand(env), offline.NewDiffCommand(env),
			offline.NewExplainCommand(env), offline.NewGraphCommand(env), offline.NewFirewallCommand(env),
			publish.NewHistoryCommand(env), publish.NewRollbackCommand(env),
		}},
		{"observe", "Observe:", []*cobra.Command{
			observe.NewStatusCommand(env), observe.NewShowCommand(env), observe.NewVerifyCommand(env), observe.NewDiagnoseCommand(env),
			install.NewBenchmarkCommand(env), ui.NewUICommand(env), observe.NewReportCommand(env), observe.NewGatherCommand(env),
		}},
		{"deliver", "Deliver:", []*cobra.Command{
			publish.NewReconcileCommand(env), offline.NewRenderCommand(env), install.NewApplyCommand(env), install.NewUninstallCommand(env),
		}},
		{"keys", "Keys:", []*cobra.Command{keys.NewKeysCommand(env)}},
		{"lab", "Lab:", []*cobra.Command{lab.NewLabCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
		}
		root.AddCommand(g.commands...)
	}
	root.AddCommand(newVersionCommand(env), manpage.Command())
	addCompletions(root)
	return root
}

// suggestFlag adds the most similar flag to the error about an unknown flag.
func suggestFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1 { // a single letter has no similar flag
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
