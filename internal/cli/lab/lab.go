//go:build linux

// Package lab has the commands of hawser lab, which runs a clusterset in network namespaces.
package lab

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/lab"
	"hawser.dev/hawser/lab/netnsexec"
	"hawser.dev/hawser/reconciler"
)

// labFlags are the flags of all lab commands.
type labFlags struct{ dir string }

func (f *labFlags) layout() (lab.Layout, error) {
	dir, err := lab.DirFrom(f.dir, os.Getenv(lab.DirEnv))
	return lab.Layout{Dir: dir}, err
}

func (f *labFlags) client() (*lab.Client, error) {
	l, err := f.layout()
	if err != nil {
		return nil, err
	}
	return lab.NewClient(l), nil
}

func NewLabCommand() *cobra.Command {
	f := &labFlags{}
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Run a clusterset on this machine, in network namespaces",
		Long: `Run a whole clusterset on this Linux machine from your own topology and manifests. Every
node and pod is a network namespace. The reconciler and the agents are the real programs;
only the underlay between nodes is simulated.

The topology is in a git repository; hawser lab repo prints its path. Commit there, and
the reconciler publishes the commit to the agents.

  hawser lab up -f clusterset.yaml -w workloads/
  hawser lab exec g1/default/client -- curl -s whereami-cs.sample.svc.clusterset.local
  hawser lab down`,
		Args: cli.NoVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&f.dir, "dir", "", "directory of the lab (env "+lab.DirEnv+") ["+lab.DefaultDir+"]")
	cmd.AddCommand(
		newLabUpCommand(f), newLabDownCommand(f), newLabStatusCommand(f), newLabRepoCommand(f), newLabRecipientCommand(f),
		newLabExecCommand(f), newLabNodeCommand(f), newLabUnderlayCommand(f), newLabLogsCommand(f), newLabApplyCommand(f), newLabDeleteCommand(f),
		newLabScaleCommand(f), newLabReadyCommand(f), newLabFaultCommand(f), newLabDaemonCommand(f), newLabNsexecCommand(),
	)
	return cmd
}

func newLabUpCommand(f *labFlags) *cobra.Command {
	o := lab.UpOptions{Topology: reconciler.TopologyFile}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a lab, and wait until every agent is ready",
		Long: `Start a lab: a node for every gateway of the topology and --workers more nodes per cluster,
the pods and Services of the manifests, a git repository with the topology, the reconciler,
and an agent on every node. If the lab runs, start missing parts and apply the manifests
again.

The directory of manifests has one directory per cluster, with Namespace, Pod, Deployment,
StatefulSet, Service and ServiceExport. Images are ignored: every TCP container port
answers HTTP and every UDP port echoes, with the pod's name and the client's address. The
lab replaces the recipients of the topology by recipients of its own identities.`,
		Example: `  hawser lab up -f clusterset.yaml
  hawser lab up -f clusterset.yaml -w workloads/ --workers 2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := f.layout()
			if err != nil {
				return err
			}
			if o.Hawser, err = os.Executable(); err != nil {
				return fmt.Errorf("find the hawser program: %w", err)
			}
			o.Version = cmd.Root().Version
			o.Progress = func(e lab.Event) {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s %s\n", e.At.Format("15:04:05.000"), e.Text)
			}
			err = lab.Up(cmd.Context(), l, o)
			var invalid *lab.InvalidError
			if errors.As(err, &invalid) {
				return cli.FindingsError{List: invalid.List, Files: map[string][]byte{invalid.File: invalid.Raw}}
			}
			return err
		},
	}
	flags := cmd.Flags()
	topofile.AddFileFlag(cmd, false, &o.Topology, "topology to make the lab from")
	flags.StringVar(&o.Underlay, "underlay", "", "file with routers, firewalls and networks between the gateways (docs/lab.md)")
	flags.StringVarP(&o.Workloads, "workloads", "w", "", "directory with one directory of manifests per cluster")
	flags.IntVar(&o.Workers, "workers", 1, "nodes per cluster in addition to its gateways")
	flags.BoolVar(&o.Overlay, "overlay", false, "put the pods of a cluster on one network that bypasses their nodes, as some CNIs do (docs/lab.md)")
	flags.BoolVar(&o.NoHawser, "bare", false, "start nodes, pods and Services only, without reconciler and agents")
	flags.DurationVar(&o.Timeout, "timeout", 90*time.Second, "how long to wait for everything to be ready")
	return cmd
}

func newLabDownCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "down",
		Short:   "Remove the lab: processes, namespaces, links and files",
		Example: `  hawser lab down`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := f.layout()
			if err != nil {
				return err
			}
			was, err := lab.Down(cmd.Context(), l)
			if err == nil && !was {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "no lab in %s\n", l.Dir)
			}
			return err
		},
	}
}

func newLabRepoCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "repo",
		Short:   "Print the path of the topology's git repository",
		Example: `  cd "$(hawser lab repo)"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := f.layout()
			if err != nil {
				return err
			}
			if _, err := os.Stat(l.Repo()); err != nil {
				return fmt.Errorf("%s: %w", l.Dir, lab.ErrNoLab)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), l.Repo())
			return err
		},
	}
}

func newLabRecipientCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "recipient CLUSTER",
		Short:   "Print the age recipient of a cluster of this lab",
		Example: `  hawser lab recipient g3`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := f.layout()
			if err != nil {
				return err
			}
			if filepath.Base(args[0]) != args[0] {
				return fmt.Errorf("cluster %q: not the name of a cluster", args[0])
			}
			recipient, err := l.Recipient(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), recipient)
			return err
		},
	}
}

// newLabDaemonCommand returns the command of the process that owns a running lab.
func newLabDaemonCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:    "daemon",
		Short:  "Own a running lab",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := f.layout()
			if err != nil {
				return err
			}
			return lab.Serve(cmd.Context(), l, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
		},
	}
}

// newLabNsexecCommand returns the command that runs a program in a namespace.
func newLabNsexecCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "nsexec --net FILE [flags] -- CMD [ARGS...]",
		Short:              "Run a program inside a network namespace",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			e, err := netnsexec.ParseExec(args)
			if err != nil {
				return err
			}
			return e.Replace(os.Environ())
		},
	}
}
