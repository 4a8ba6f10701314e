// Package ui has the command hawser ui and the data sources of the page.
package ui

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/internal/cli/baseline"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/view/ui"
)

type uiFlags struct {
	agentquery.Targets // the agents to query; File is the topology
	live               bool
	listen             string
	interval           time.Duration
	repo               string
	branch             string
	signers            string
	page               clusterPageFlags
}

func NewUICommand(env *cli.Env) *cobra.Command {
	var f uiFlags
	cmd := &cobra.Command{
		Use:   "ui [FILE|DIR]",
		Short: "Serve a web page of the clusterset on this machine",
		Long: `Serve a web page of the clusterset on the loopback address, until it is interrupted: the
map with the state of links, access between clusters, the plan of a change, packet paths,
and each node. The page is read-only. The printed URL contains a token; only browsers with
that URL can open the page.

By default the page shows the topology and the publish branch. --live adds the reports of
the agents of the lab or of this host, as in hawser show. --lab, --socket, --context,
--kubeconfig and --cluster select agents and imply --live. Without a topology in this
directory, the page shows the topology of the lab.

--in-cluster serves the page in a pod, which ui: {} in the topology creates. It shows the
mounted fabric and the HawserNodes of that cluster. Other hosts reach it under the names of
its Service and of --host.

Exit codes: 0 interrupted; 1 errors in the topology; 2 error.`,
		Example: `  hawser ui
  hawser ui --live
  hawser ui -f clusterset.yaml --context fra=admin@fra,sin=admin@sin`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"fabric", "trust", "state", "host", "token-file"} {
				if cmd.Flags().Changed(name) && !f.page.inCluster {
					return fmt.Errorf("--%s is for a page in a cluster: add --in-cluster", name)
				}
			}
			return runUI(cmd.Context(), env, args, f)
		},
	}
	f.AddFlags(cmd, false)
	cmd.Flags().Lookup("file").Usage = "topology: a file or a directory; the same as the argument"
	cmd.Flags().BoolVar(&f.live, "live", false, "query the agents and show their state")
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:0", "loopback address and port of the page, any address with --in-cluster; port 0 = a free port")
	cmd.Flags().DurationVar(&f.interval, "interval", 500*time.Millisecond, "time between two queries of an agent, at least 100ms")
	cmd.Flags().StringVar(&f.repo, "repo", "", "path or URL of the repository with the publish branch (default: the topology's)")
	cmd.Flags().StringVar(&f.branch, "branch", reconciler.DefaultPublishBranch, "publish branch")
	flags := cmd.Flags()
	flags.StringVar(&f.signers, "signers", "", baseline.SignersHelp)
	flags.BoolVar(&f.page.inCluster, "in-cluster", false, "serve the page in a pod of the cluster that --cluster names (ui: {} in the topology)")
	flags.StringVar(&f.page.fabric, "fabric", "/etc/hawser/fabric", "in a cluster: directory with the mounted fabric")
	flags.StringVar(&f.page.trust, "trust", "", "in a cluster: file of pinned signers that must sign the fabric")
	flags.StringVar(&f.page.state, "state", "/var/lib/hawser", "in a cluster: directory for the last good fabric")
	flags.StringArrayVar(&f.page.hosts, "host", nil, "in a cluster: name under which an ingress serves the page; may be repeated")
	flags.StringVar(&f.page.tokenFile, "token-file", "", "in a cluster: file of the token (default: a new token, in the log)")
	return cmd
}

func runUI(ctx context.Context, env *cli.Env, args []string, f uiFlags) error {
	if f.interval < 100*time.Millisecond {
		return fmt.Errorf("--interval %s: at least 100ms", f.interval)
	}
	if f.page.inCluster {
		if len(args) > 0 || f.File != "" {
			return errors.New("--in-cluster: the topology is the mounted fabric (--fabric), and no file")
		}
		return clusterPage(ctx, env, f)
	}
	addrPort, err := netip.ParseAddrPort(f.listen)
	if err != nil || !addrPort.Addr().IsLoopback() {
		return fmt.Errorf("--listen %s: give a loopback address and a port, such as 127.0.0.1:8080 (from elsewhere: ssh -L 8080:127.0.0.1:8080)", f.listen)
	}
	if f.File != "" {
		args, f.File = append(args, f.File), ""
	}
	if len(args) > 1 {
		return fmt.Errorf("%s and -f %s: name one topology", args[0], args[1])
	}
	if len(args) == 1 && args[0] == "-" {
		return errors.New("the page reads the topology again when it changes: name a file, not -")
	}
	if len(args) == 0 && (f.Lab != "" || f.live && cli.IsMissing(reconciler.TopologyFile)) {
		dir, err := agentquery.LabDir(f.Lab)
		if err != nil {
			return err
		}
		args = []string{filepath.Join(dir, "repo")}
	}
	source := &uiSource{env: env, flags: f, args: args, live: f.live || f.Lab != "" || len(f.Sockets) > 0 || f.OfClusters()}
	source.poller.Targets = source.targets
	if _, err := source.Clusterset(ctx); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(env.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	server := ui.New(ui.Config{Source: source, Interval: f.interval, Log: log,
		Version: env.Version})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addrPort.String())
	if err != nil {
		return fmt.Errorf("listen for browsers: %w", err)
	}
	_, _ = fmt.Fprintf(env.Err, "the page of the clusterset, until it is interrupted:\n")
	if _, err := fmt.Fprintln(env.Out, server.URL("http://"+listener.Addr().String())); err != nil {
		return fmt.Errorf("write the URL: %w", err)
	}
	return server.Serve(ctx, listener)
}

// clusterPageFlags are the flags of hawser ui in a cluster, as in render/cluster/ui.yaml.
type clusterPageFlags struct {
	inCluster bool
	fabric    string
	trust     string
	state     string
	hosts     []string
	tokenFile string
}
