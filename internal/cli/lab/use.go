//go:build linux

package lab

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/checkout"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/lab"
	"hawser.dev/hawser/lab/workload"
)

func newLabExecCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "exec CLUSTER/NAMESPACE/POD -- CMD [ARGS...]",
		Short: "Run a program of this machine inside a pod",
		Long: `Run a program of this machine with the network, the resolver and the host name of a pod,
connected to this terminal. The exit code is that program's.`,
		Example:           `  hawser lab exec g1/default/client -- curl -s web.shop.svc.clusterset.local`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: f.complete(podsOf),
		RunE:              func(cmd *cobra.Command, args []string) error { return f.enter(cmd, args, 2, "CLUSTER/NAMESPACE/POD") },
	}
}

func newLabNodeCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "node CLUSTER/NODE -- CMD [ARGS...]",
		Short: "Run a program of this machine on a node",
		Long: `Run a program of this machine with the network, the resolver, the host name and the /run of
a node. hawser-agent status, wg, nft and ip then show that node.`,
		Example:           `  hawser lab node g1/g1-gw -- ip -br addr`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: f.complete(nodesOf),
		RunE:              func(cmd *cobra.Command, args []string) error { return f.enter(cmd, args, 1, "CLUSTER/NODE") },
	}
}

func newLabUnderlayCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "underlay -- CMD [ARGS...]",
		Short: "Run a program between the nodes, such as tcpdump",
		Long: `Run a program of this machine in the network between the nodes: bridge wan, and one bridge
lanN per cluster. hawser lab status -o json lists each node's ends there (links).`,
		Example: `  hawser lab underlay -- ip -br addr`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}
			return c.Exec(cmd.Context(), lab.Underlay, args)
		},
	}
}

func (f *labFlags) enter(cmd *cobra.Command, args []string, slashes int, form string) error {
	if strings.Count(args[0], "/") != slashes {
		return fmt.Errorf("%q: name it %s, as hawser lab status does", args[0], form)
	}
	c, err := f.client()
	if err != nil {
		return err
	}
	return c.Exec(cmd.Context(), args[0], args[1:])
}

func newLabLogsCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "logs CLUSTER/NODE|reconciler",
		Short: "Print the log of a node's agent, or of the reconciler",
		Example: `  hawser lab logs g1/g1-gw
  hawser lab logs reconciler`,
		Args: cobra.ExactArgs(1),

		ValidArgsFunction: f.complete(nodesOf, "reconciler"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.client()
			if err != nil {
				return err
			}
			path, err := c.LogFile(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			file, err := os.Open(path)
			if os.IsNotExist(err) {
				return nil // not started yet
			}
			if err != nil {
				return fmt.Errorf("read log: %w", err)
			}
			defer func() { _ = file.Close() }()
			_, err = io.Copy(cmd.OutOrStdout(), file)
			return err
		},
	}
}

func newLabApplyCommand(f *labFlags) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "apply CLUSTER -f FILE",
		Short:   "Add manifests to a cluster, or change them",
		Example: `  hawser lab apply g1 -f web.yaml`,
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: f.complete(clustersOf),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := readManifests(cmd, file)
			if err != nil {
				return err
			}
			if _, warnings, err := workload.Parse(file, []byte(raw)); err == nil {
				if err := diag.Print(cmd.ErrOrStderr(), warnings, map[string][]byte{file: []byte(raw)}, false); err != nil {
					return err
				}
			}
			return f.change(cmd, lab.Change{Cluster: args[0], Apply: raw, File: file})
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "file of manifests, - for standard input")
	_ = cmd.MarkFlagRequired("filename") // the flag exists
	return cmd
}

func newLabDeleteCommand(f *labFlags) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "delete CLUSTER -f FILE | delete CLUSTER/NAMESPACE/KIND/NAME",
		Short:   "Remove workloads from a cluster",
		Example: `  hawser lab delete g1/shop/Deployment/web`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cluster, object, _ := strings.Cut(args[0], "/")
			if (object == "") == (file == "") {
				return fmt.Errorf("delete %s: name either an object or a file (see %s --help)", args[0], cmd.CommandPath())
			}
			if file == "" {
				return f.change(cmd, lab.Change{Cluster: cluster, Object: object})
			}
			raw, err := readManifests(cmd, file)
			if err != nil {
				return err
			}
			return f.change(cmd, lab.Change{Cluster: cluster, Delete: raw, File: file})
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "file of manifests, - for standard input")
	return cmd
}

func readManifests(cmd *cobra.Command, file string) (string, error) {
	var raw []byte
	var err error
	if file == "-" {
		raw, err = io.ReadAll(cmd.InOrStdin())
	} else {
		raw, err = checkout.ReadNamed(file)
	}
	if err != nil {
		return "", fmt.Errorf("read manifests: %w", err)
	}
	if len(strings.TrimSpace(string(raw))) == 0 {
		return "", fmt.Errorf("read manifests: %s is empty", file)
	}
	return string(raw), nil
}

func newLabScaleCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "scale CLUSTER/NAMESPACE/KIND/NAME N",
		Short:   "Set the replicas of a Deployment or StatefulSet",
		Example: `  hawser lab scale g1/shop/Deployment/web 3`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseInt(args[1], 10, 32)
			if err != nil || n < 0 {
				return fmt.Errorf("replicas %q: a number from 0", args[1])
			}
			replicas := int32(n)
			cluster, object, _ := strings.Cut(args[0], "/")
			return f.change(cmd, lab.Change{Cluster: cluster, Object: object, Replicas: &replicas})
		},
	}
}

func newLabReadyCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "ready CLUSTER/NAMESPACE/POD true|false",
		Short:   "Make a pod ready or not, as a readiness probe would",
		Example: `  hawser lab ready g1/shop/web-0 false`,
		Args:    cobra.ExactArgs(2),

		ValidArgsFunction: f.complete(podsOf),
		RunE: func(cmd *cobra.Command, args []string) error {
			ready, err := strconv.ParseBool(args[1])
			if err != nil {
				return fmt.Errorf("%q: true or false", args[1])
			}
			cluster, pod, _ := strings.Cut(args[0], "/")
			if strings.Count(pod, "/") != 1 {
				return fmt.Errorf("%q: write CLUSTER/NAMESPACE/POD, as hawser lab status does", args[0])
			}
			return f.change(cmd, lab.Change{Cluster: cluster, Pod: pod, Ready: ready})
		},
	}
}

func (f *labFlags) change(cmd *cobra.Command, change lab.Change) error {
	c, err := f.client()
	if err != nil {
		return err
	}
	return c.Change(cmd.Context(), change)
}
