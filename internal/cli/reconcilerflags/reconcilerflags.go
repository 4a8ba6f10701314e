// Package reconcilerflags creates a reconciler from flags.
package reconcilerflags

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/reconciler/gitrepo"
)

// Flags configure a reconciler.
type Flags struct {
	Cfg         reconciler.Config
	PublishRepo string
	Listen      string
	Once        bool
	DryRun      bool
	LogFormat   string
	Verbose     bool
}

// Default author of published commits.
const (
	AuthorName  = "hawser"
	AuthorEmail = "reconciler@hawser.dev"
)

// WithEnvironment returns the login of the flags with the passwords and the host from the
// environment.
func WithEnvironment(flags gitrepo.Auth, addresses ...string) gitrepo.Auth {
	env := baseline.AuthFor(addresses...)
	flags.Host, flags.Password, flags.SSHKeyPassword = env.Host, env.Password, env.SSHKeyPassword
	return flags
}

// AddAuthFlags adds the login flags of commands that write to repositories.
func AddAuthFlags(cmd *cobra.Command, into *gitrepo.Auth) {
	flags := cmd.Flags()
	flags.StringVar(&into.Username, "git-username", baseline.Auth().Username, "user name for HTTP")
	flags.StringVar(&into.PasswordFile, "git-token-file", "", "file of the password or token for HTTP")
	flags.StringVar(&into.SSHKeyFile, "ssh-key", "", "private key file for SSH (default: the SSH agent)")
	flags.StringVar(&into.SSHKnownHosts, "ssh-known-hosts", "", "known_hosts file (default: the user's and the system's)")
}

// New creates a reconciler that logs to stderr.
func New(env *cli.Env, f *Flags) (*reconciler.Reconciler, error) {
	c := f.Cfg
	if c.RootKeyFile == "" {
		return nil, topofile.ErrNoRootKey()
	}
	if c.Interval <= 0 {
		return nil, fmt.Errorf("--interval %s: it must be more than 0", c.Interval)
	}
	level := slog.LevelInfo
	if f.Verbose {
		level = slog.LevelDebug
	}
	var handler slog.Handler = slog.NewTextHandler(env.Err, &slog.HandlerOptions{Level: level})
	switch f.LogFormat {
	case "json":
		handler = slog.NewJSONHandler(env.Err, &slog.HandlerOptions{Level: level})
	case "text":
	default:
		return nil, fmt.Errorf("--log-format %q: it is text or json", f.LogFormat)
	}
	c.Publish = gitrepo.Config{URL: f.PublishRepo, Auth: c.Source.Auth}
	if c.Source.Cache != "" {
		c.Publish.Cache = c.Source.Cache + "-publish"
	}
	c.Version, c.Log, c.Now = env.Version, slog.New(handler), time.Now
	if f.Once || f.DryRun {
		c.Log = slog.New(slog.DiscardHandler) // the command prints the result itself
	}
	return reconciler.New(c)
}

// FailureError returns the error with exit code 1 or 2 for a failed pass.
func FailureError(env *cli.Env, f *reconciler.Failure) error {
	if len(f.Diagnostics) > 0 {
		return cli.FindingsError{List: f.Diagnostics, Files: f.Files()}
	}
	if f.Refused() {
		return cli.ExitError{Msg: "error: " + f.Message}
	}
	return f
}
