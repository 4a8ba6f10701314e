// Command hawser-agent converges one node of a clusterset.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/hardening"
	"hawser.dev/hawser/internal/manpage"
)

// version is set by the linker.
var version = "dev"

// Exit codes (docs/cli.md): 0 fine, 1 not fine, 2 unknown or error.
const (
	exitNegative = 1
	exitError    = 2
)

// errNegative makes a successful command exit with code exitNo.
var errNegative = errors.New("no")

func main() {
	// First of all: other processes must not read this program's memory.
	if err := errors.Join(hardening.HardenProcess(), hardening.RestrictBPF()); err != nil {
		fmt.Fprintln(os.Stderr, "hawser-agent:", err)
		os.Exit(exitError)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "hawser-agent",
		Short: "Converges one node of a clusterset to its fabric",
		Example: `  hawser-agent status
  hawser-agent plan`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	root.SetVersionTemplate("{{.Version}}\n") // like the command version
	root.AddCommand(runCommand(), planCommand(), statusCommand(), cleanupCommand(),
		drainCommand(), undrainCommand(), diagnoseCommand(), verifyCommand(), podCheckCommand(), connProbeCommand(), kernelCommand(), metricsCommand(), versionCommand(), wireguardCommand(), portcheckCommand(), benchmarkCommand(), manpage.Command())
	return root
}

func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if errors.Is(err, errNegative) {
		return exitNegative
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hawser-agent:", err)
		return exitError
	}
	return 0
}
