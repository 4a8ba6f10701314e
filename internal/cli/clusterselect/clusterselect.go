// Package clusterselect has the flags that select clusters and the contexts of a kubeconfig.
package clusterselect

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/load"
)

// Flags select the clusters of a command and the access to them.
type Flags struct {
	Access   kubeclient.Kubeconfig
	Clusters []string
}

// Add adds the flags to a command; if persistent, also to its subcommands.
func (f *Flags) Add(cmd *cobra.Command, persistent bool) {
	f.AddKubeconfig(cmd, persistent)
	flagSet(cmd, persistent).StringSliceVar(&f.Clusters, "cluster", nil, "only these clusters")
	cli.CompleteFlag(cmd, "cluster", cli.CompleteList(CompletionNames))
}

// AddKubeconfig adds the flags for access to clusters to a command; if persistent, also to its
// subcommands.
func (f *Flags) AddKubeconfig(cmd *cobra.Command, persistent bool) {
	flags := flagSet(cmd, persistent)
	flags.StringSliceVar(&f.Access.Contexts, "context", nil, "CLUSTER=CONTEXT of the kubeconfig, or CONTEXT (default: the context named like the cluster)")
	flags.StringArrayVar(&f.Access.Kubeconfigs, "kubeconfig", nil, "kubeconfig file; may be repeated (default: $KUBECONFIG, then ~/.kube/config)")
	cli.CompleteFlag(cmd, "context", cli.CompleteList(clusterContexts))
}

func flagSet(cmd *cobra.Command, persistent bool) *pflag.FlagSet {
	if persistent {
		return cmd.PersistentFlags()
	}
	return cmd.Flags()
}

// Select returns clients for the clusters that the flags select out of all.
func (f *Flags) Select(all []string) ([]*kubeclient.Client, error) {
	names, err := f.Names(all)
	if err != nil {
		return nil, err
	}
	return f.Access.Clusters(names, all)
}

// LoadWithClusters reads a topology and opens the clusters that the flags name. It prints no
// warnings, because the build of the topology prints them.
func LoadWithClusters(env *cli.Env, args []string, f *Flags) (t topofile.File, set *schema.ClusterSet, src *document.Source, clusters []*kubeclient.Client, err error) {
	if t, err = topofile.Read(env, args); err != nil {
		return t, nil, nil, nil, err
	}
	set, src, list := load.Topology(t.Path, t.Raw)
	if list.HasErrors() {
		return t, nil, nil, nil, cli.FindingsError{List: list, Files: t.Texts()}
	}
	clusters, err = f.Select(set.ClusterNames())
	return t, set, src, clusters, err
}

// Names returns the selected clusters out of all.
func (f *Flags) Names(all []string) ([]string, error) {
	if len(f.Clusters) == 0 {
		return all, nil
	}
	var names []string
	for _, name := range f.Clusters {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("--cluster %s: there is no such cluster, only %s", name, strings.Join(all, ", "))
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// AddContextFlags adds the flags of commands whose clusters are not yet in a topology.
func AddContextFlags(cmd *cobra.Command, access *kubeclient.Kubeconfig) {
	cmd.Flags().StringSliceVar(&access.Contexts, "context", nil,
		"CONTEXT or NAME=CONTEXT of the kubeconfig; several with commas, or repeated")
	cmd.Flags().StringArrayVar(&access.Kubeconfigs, "kubeconfig", nil,
		"kubeconfig file; may be repeated (default: $KUBECONFIG, then ~/.kube/config)")
	cli.CompleteFlag(cmd, "context", cli.CompleteList(ContextNames))
}

// ContextFlagsText returns the command line flags that select the clusters.
func ContextFlagsText(clusters []*kubeclient.Client, access kubeclient.Kubeconfig) string {
	words := ""
	for _, c := range clusters {
		if c.Name != c.Context {
			words += " --context " + cli.ShellQuote(c.Name+"="+c.Context)
		}
	}
	for _, file := range access.Kubeconfigs {
		words += " --kubeconfig " + cli.ShellQuote(file)
	}
	return words
}

// NamesByContext returns the clusters that the flags name without a topology.
func NamesByContext(f Flags) (names, all []string, err error) {
	all = slices.Clone(f.Clusters)
	for _, pair := range f.Access.Contexts {
		name, _, ok := strings.Cut(pair, "=")
		if !ok {
			name = discover.NameOf(pair)
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return nil, nil, errors.New("say which clusters: a topology, --cluster, or --context CLUSTER=CONTEXT")
	}
	if names = f.Clusters; len(names) == 0 {
		names = all
	}
	return names, all, nil
}

// SelectNames returns the clusters that the flags select, and all clusters of the topology.
func SelectNames(t topofile.File, f Flags) (names, all []string, err error) {
	set, _, list := load.Topology(t.Path, t.Raw)
	if list.HasErrors() {
		return nil, nil, cli.FindingsError{List: list, Files: t.Texts()}
	}
	all = set.ClusterNames()
	names, err = f.Names(all)
	return names, all, err
}
