package agentquery

import (
	"cmp"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/clusterselect"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/reconciler"
	"hawser.dev/hawser/schema/fabric"
)

// OfClusters reports whether the flags select agents in pods of clusters.
func (f Targets) OfClusters() bool {
	return len(f.Access.Contexts)+len(f.Access.Kubeconfigs)+len(f.Clusters) > 0
}

// For selects the clusters of a fabric if the flags name only contexts.
func (f Targets) For(shown *fabric.Fabric) Targets {
	if f.OfClusters() && len(f.Clusters) == 0 {
		for i := range shown.Clusters {
			f.Clusters = append(f.Clusters, shown.Clusters[i].Name)
		}
	}
	return f
}

// Targets are the flags that select agents.
type Targets struct {
	Output  string
	Sockets []string
	Lab     string
	File    string // topology with the clusters to query
	clusterselect.Flags
}

// AddFlags adds the flags that select agents.
func (f *Targets) AddFlags(cmd *cobra.Command, below bool) {
	flags := cmd.Flags()
	if below {
		flags = cmd.PersistentFlags()
	}
	flags.StringArrayVar(&f.Sockets, "socket", nil, "unix socket of an agent, or a glob pattern; may be repeated")
	flags.StringVar(&f.Lab, "lab", "", "directory of the lab to query")
	topofile.AddFileFlag(cmd, below, &f.File, "topology with the clusters to query")
	f.Add(cmd, below)
}

// Resolve returns the sockets of the selected agents, or no sockets if the agents run in pods; then
// the returned targets select the clusters. Without flags it selects the agents of the lab or of this
// host, else of the clusters of the topology in the current directory.
func (f Targets) Resolve() (Targets, []string, error) {
	if len(f.Access.Contexts)+len(f.Clusters)+len(f.File) > 0 {
		return f, nil, nil
	}
	sockets, err := Sockets(f.Sockets, f.Lab)
	if err != nil && len(f.Sockets)+len(f.Lab) == 0 && !cli.IsMissing(reconciler.TopologyFile) {
		f.File = reconciler.TopologyFile
		return f, nil, nil
	}
	return f, sockets, err
}

// Clients returns clients for the clusters that the flags name, or for all clusters of the
// topology.
func (f Targets) Clients() ([]*kubeclient.Client, error) {
	if len(f.Sockets) > 0 || f.Lab != "" {
		return nil, errors.New("--socket and --lab cannot be combined with --context or --cluster")
	}
	names, all, err := clusterselect.NamesByContext(f.Flags)
	if f.File != "" {
		t, failed := topofile.Open(f.File)
		if failed != nil {
			return nil, failed
		}
		names, all, err = clusterselect.SelectNames(t, f.Flags)
	}
	if err != nil {
		return nil, err
	}
	return f.Access.Clusters(names, all)
}

// Text describes the agents that the flags select, for users.
func (f Targets) Text() string {
	switch {
	case len(f.Sockets) > 0:
		return "agents at " + strings.Join(f.Sockets, ", ")
	case len(f.Access.Contexts) > 0:
		return "agents of the contexts " + strings.Join(f.Access.Contexts, ", ")
	case f.OfClusters():
		return "agents of the clusters " + cmp.Or(strings.Join(f.Clusters, ", "), "of the topology")
	}
	if sockets, err := Sockets(nil, f.Lab); err == nil && len(sockets) == 1 && sockets[0] == HostSocket {
		return "the agent of this host"
	}
	dir, err := LabDir(f.Lab)
	if err != nil {
		return "agents of the lab"
	}
	return "agents of the lab in " + dir
}
