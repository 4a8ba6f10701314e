package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"hawser.dev/hawser/nodeagent"
	"hawser.dev/hawser/nodeagent/kernel"
)

const (
	defaultSocket = "/run/hawser/agent.sock"
	dnsPort       = 53

	// gcPercent is the garbage collection target (GOGC) of the agent. An agent at rest allocates
	// little, so a small heap is cheap.
	gcPercent = 50
)

// settings are the common flags of run, plan and cleanup.
type settings struct {
	config    nodeagent.Config
	dnsListen string
	logLevel  string
	logFormat string
}

func (s *settings) register(cmd *cobra.Command) {
	f := cmd.Flags()
	c := &s.config
	f.StringVar(&c.Cluster, "cluster", os.Getenv("HAWSER_CLUSTER"), "this node's cluster, as the topology names it (env HAWSER_CLUSTER)")
	f.StringVar(&c.Node, "node", os.Getenv("HAWSER_NODE"), "this node's name (env HAWSER_NODE)")
	f.StringVar(&c.FabricDir, "fabric", "/etc/hawser/fabric", "directory of the fabric document")
	f.StringVar(&c.KeysDir, "keys", "/etc/hawser/keys", "directory of the sealed keys; gateways only")
	f.StringVar(&c.Trust, "trust", "/etc/hawser/trust/signers", "file of the pinned signers of fabric and keys (hawser keys signers)")
	f.StringVar(&c.Identity, "identity", "/etc/hawser/identity/identity.txt", "file of the age identity that opens the keys; gateways only")
	f.StringVar(&c.FactsDir, "facts", "/etc/hawser/facts", "directory of Kubernetes objects in YAML, for hosts without a Kubernetes API")
	f.StringVar(&c.LeasesDir, "leases", "", "directory shared by all nodes of the cluster, for the Leases of gateways with nodeSelector without a Kubernetes API [none]")
	f.StringVar(&c.HawserNodesDir, "hawsernodes", "", "directory shared by all nodes of the cluster, for their HawserNodes without a Kubernetes API [none]")
	f.BoolVar(&c.Kube.InCluster, "kubernetes", false, "read facts from the Kubernetes API as the service account of this pod")
	f.StringVar(&c.Kube.Kubeconfig, "kubeconfig", "", "read facts from the Kubernetes API with this kubeconfig")
	f.StringVar(&c.Kube.Context, "context", "", "context of --kubeconfig [its current one]")
	f.StringVar(&c.StateDir, "state", "/var/lib/hawser", "directory for the last good inputs")
	f.StringVar(&c.Socket, "socket", defaultSocket, "unix socket for status")
	f.StringVar(&c.VICI, "vici", "", "vici socket of the host's charon, for links with driver ipsec [own charon]")
	f.StringVar(&s.dnsListen, "dns-listen", "", "address[:port] of the name server [as the fabric says, port 53]")
	f.StringVar(&c.ProcSys, "proc-sys", kernel.DefaultSysctls, "writable /proc/sys, for containers where it is read-only")
	f.StringSliceVar(&c.Metrics, "metrics", nil, "host:port for /metrics, /healthz and /readyz; may be repeated [none]")
	f.DurationVar(&c.Resync, "resync", 30*time.Second, "longest time between two converge rounds")
	f.DurationVar(&c.FeedStale, "feed-stale", 30*time.Second, "how long live data of a cluster stays valid after its feed was lost")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
}

// agent opens an agent with these settings.
func (s *settings) agent() (*nodeagent.Agent, error) {
	log, err := s.logger()
	if err != nil {
		return nil, err
	}
	if s.config.DNSListen, err = parseListen(s.dnsListen); err != nil {
		return nil, err
	}
	s.config.Version = version
	s.config.Kube.UserAgent = "hawser-agent/" + version
	klog.SetSlogLogger(log) // log of client-go
	return nodeagent.New(s.config, log)
}

func (s *settings) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %s: use debug, info, warn or error", s.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch s.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return nil, fmt.Errorf("--log-format %s: use text or json", s.logFormat)
}

func parseListen(text string) (netip.AddrPort, error) {
	if text == "" {
		return netip.AddrPort{}, nil
	}
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(addr, dnsPort), nil
	}
	listen, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--dns-listen %s: use an address, or address:port", text)
	}
	return listen, nil
}

func runCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Configure this node until stopped",
		Long: `Configure this node until SIGTERM: tunnels, routes, NAT and filters. They keep working after
the agent ends; hawser-agent cleanup removes them.`,
		Example: `  hawser-agent run --cluster office --node db1 --fabric /etc/hawser/fabric --keys /etc/hawser/keys --identity /etc/hawser/identity.txt --facts /etc/hawser/facts`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			a, err := s.agent()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, a.Close()) }()
			return a.Run(cmd.Context())
		},
	}
	s.register(cmd)
	return cmd
}
