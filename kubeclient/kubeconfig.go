package kubeclient

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"hawser.dev/hawser/discover"
	"hawser.dev/hawser/schema/fabric"
)

// Kubeconfig selects the contexts of the clusters.
type Kubeconfig struct {
	Kubeconfigs []string // files, the first has precedence; none = $KUBECONFIG, then ~/.kube/config
	// Contexts are CLUSTER=CONTEXT, or CONTEXT for the cluster with the name discover.NameOf.
	// Other clusters use the context with their name.
	Contexts []string
}

// Clusters returns a client for each named cluster out of all. A cluster without a context is an
// error, so that no cluster is skipped silently.
func (a Kubeconfig) Clusters(names, all []string) ([]*Client, error) {
	config, err := a.load()
	if err != nil {
		return nil, err
	}
	contexts, err := a.mapping(names, all, config)
	if err != nil {
		return nil, err
	}
	var out []*Client
	for _, name := range names {
		restConfig, err := clientcmd.NewNonInteractiveClientConfig(*config, contexts[name], &clientcmd.ConfigOverrides{}, nil).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("context %s: %w", contexts[name], err)
		}
		c, err := Open(name, contexts[name], restConfig)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// Known returns the names of all contexts, sorted.
func (a Kubeconfig) Known() ([]string, error) {
	config, err := a.load()
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(config.Contexts)), nil
}

func (a Kubeconfig) load() (*api.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.WarnIfAllMissing = false
	if len(a.Kubeconfigs) > 0 {
		rules.ExplicitPath, rules.Precedence = "", a.Kubeconfigs
	}
	for _, file := range a.Kubeconfigs {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
	}
	config, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	if len(config.Contexts) == 0 {
		return nil, fmt.Errorf("there is no context in %s: name a kubeconfig with --kubeconfig or KUBECONFIG", strings.Join(rules.GetLoadingPrecedence(), ", "))
	}
	return config, nil
}

// mapping returns the context of each cluster.
func (a Kubeconfig) mapping(names, all []string, config *api.Config) (map[string]string, error) {
	known := strings.Join(slices.Sorted(maps.Keys(config.Contexts)), ", ")
	contexts := map[string]string{}
	for _, arg := range a.Contexts {
		cluster, context := parseContext(arg, config)
		switch {
		case cluster == "" || context == "":
			return nil, fmt.Errorf("--context %q: it is CLUSTER=CONTEXT, such as g1=admin@g1, or CONTEXT", arg)
		case !slices.Contains(all, cluster) && arg == context:
			return nil, fmt.Errorf("--context %s: cluster %s not found (clusters: %s): name the cluster with --context CLUSTER=%s",
				arg, cluster, strings.Join(all, ", "), context)
		case !slices.Contains(all, cluster):
			return nil, fmt.Errorf("--context %s: cluster %s not found (clusters: %s)", arg, cluster, strings.Join(all, ", "))
		}
		if config.Contexts[context] == nil {
			return nil, fmt.Errorf("--context %s: the kubeconfig has no context %s, only %s", arg, context, known)
		}
		if other := contexts[cluster]; other != "" && other != context {
			return nil, fmt.Errorf("--context %s: cluster %s has the context %s already", arg, cluster, other)
		}
		contexts[cluster] = context
	}
	var missing []string
	for _, name := range names {
		if contexts[name] == "" && config.Contexts[name] == nil {
			missing = append(missing, name)
		} else if contexts[name] == "" {
			contexts[name] = name
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("no context for %s: name it with --context %s=CONTEXT, or choose other clusters with --cluster (contexts: %s)",
			strings.Join(missing, ", "), missing[0], known)
	}
	return contexts, nil
}

// parseContext returns cluster and context of a --context value: CLUSTER=CONTEXT, or CONTEXT for
// the cluster with the name of the context.
func parseContext(text string, config *api.Config) (cluster, context string) {
	cluster, context, ok := strings.Cut(text, "=")
	if !ok || config.Contexts[text] != nil { // names of contexts may contain =
		return discover.NameOf(text), text
	}
	return cluster, context
}

// FromContexts returns a client for each of Contexts: CONTEXT or CLUSTER=CONTEXT. Without CLUSTER,
// the cluster's name is derived from the context.
func (a Kubeconfig) FromContexts() ([]*Client, error) {
	config, err := a.load()
	if err != nil {
		return nil, err
	}
	var out []*Client
	for _, text := range a.Contexts {
		name, contextName := parseContext(text, config)
		switch {
		case config.Contexts[contextName] == nil:
			return nil, fmt.Errorf("--context %s: the kubeconfig has no context %s, only %s", text, contextName,
				strings.Join(slices.Sorted(maps.Keys(config.Contexts)), ", "))
		case !fabric.IsLabel(name):
			return nil, fmt.Errorf("--context %s: %q is not a name for a cluster: name it with --context NAME=%s, in "+
				"lower-case letters, digits and hyphens",
				text, name, contextName)
		}
		for _, before := range out {
			if before.Name == name {
				return nil, fmt.Errorf("--context %s: cluster %s has the context %s already: name one of them with --context "+
					"NAME=CONTEXT", text, name, before.Context)
			}
		}
		restConfig, err := clientcmd.NewNonInteractiveClientConfig(*config, contextName, &clientcmd.ConfigOverrides{},
			nil).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("context %s: %w", contextName, err)
		}
		c, err := Open(name, contextName, restConfig)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}
