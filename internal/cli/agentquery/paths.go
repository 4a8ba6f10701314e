package agentquery

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/health"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/kubeclient/netpolicy"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// QueryPaths returns the reports of the agents of the clusters on an answer's paths.
func QueryPaths(ctx context.Context, env *cli.Env, f Targets, fab *fabric.Fabric, answer *access.Answer) (access.AgentReports, error) {
	r := access.AgentReports{Unreachable: map[string]string{}, Unresolved: map[string]string{}, DestinationPolicies: map[string][]string{}}
	// The topology is loaded already, and -f may be stdin.
	f.File = ""
	pods := f.OfClusters()
	if !pods {
		sockets, err := Sockets(f.Sockets, f.Lab)
		if pods = err != nil && len(f.Sockets) == 0 && f.Lab == ""; err != nil && !pods {
			return r, err
		}
		f.Sockets = sockets
	}
	if pods {
		if len(f.Sockets) > 0 || f.Lab != "" {
			return r, errors.New("--socket and --lab cannot be combined with --context, --kubeconfig or --cluster")
		}
		return r, queryPods(ctx, env, f, fab, answer, &r)
	}
	agents, unreachable, err := QueryStatus(ctx, env, f)
	WarnUnreachable(env, unreachable)
	r.Agents = agents
	return r, err
}

// queryPods adds the reports of agents in the pods of clusters. Clusters without a context or
// without a connection are unreachable.
func queryPods(ctx context.Context, env *cli.Env, f Targets, fab *fabric.Fabric, answer *access.Answer, r *access.AgentReports) error {
	var all []string
	for _, c := range fab.Clusters {
		all = append(all, c.Name)
	}
	selected, err := f.Names(all)
	if err != nil {
		return err
	}
	var clusters []*kubeclient.Client
	names := []string{answer.From.Cluster}
	for _, t := range answer.Destinations {
		names = append(names, t.Cluster)
		for _, l := range t.Links {
			for _, end := range []string{l.From, l.To} {
				name, _, _ := strings.Cut(end, "/")
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !slices.Contains(selected, name) {
			r.Unreachable[name] = "--cluster leaves it out"
			continue
		}
		clients, err := f.Access.Clusters([]string{name}, all)
		if err != nil {
			r.Unreachable[name] = err.Error()
			continue
		}
		clusters = append(clusters, clients...)
	}
	defer env.Progress("asking the agents")()
	var got responses[status.Status]
	got.fromPods(ctx, clusters, StatusRequest())
	slices.SortFunc(got.unreachable, func(a, b status.Unreachable) int { return cmp.Compare(a.Agent, b.Agent) })
	WarnUnreachable(env, got.unreachable)
	r.Agents = Statuses(got.all)
	for _, s := range got.unreachable {
		if name, _, _ := strings.Cut(s.Agent, "/"); r.Unreachable[name] == "" {
			r.Unreachable[name] = s.Error
		}
	}
	states := make([]health.State, len(clusters))
	kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) { states[i] = clusterstatus.Read(ctx, c) })
	r.Problems = health.Assess(states)
	for _, p := range r.Problems {
		if p.Cluster == answer.From.Cluster && r.Unreachable[p.Cluster] == "" && (p.Code == health.CodeDNS || p.Code == health.CodeUnreachable) {
			r.Unresolved[p.Cluster] = p.Text
		}
	}
	addAnswerPolicies(ctx, clusters, answer, r)
	return nil
}

// addAnswerPolicies adds the NetworkPolicies of the source and of the destinations of an answer.
func addAnswerPolicies(ctx context.Context, clusters []*kubeclient.Client, answer *access.Answer, r *access.AgentReports) {
	from, to := answer.From, answer.To
	for _, c := range clusters {
		if r.Unreachable[c.Name] != "" {
			continue
		}
		switch {
		case c.Name != from.Cluster || from.Node:
		case from.Pod != "":
			r.SourcePolicies = PolicyTexts(netpolicy.OfPod(ctx, c, from.Namespace, from.Pod, networkingv1.PolicyTypeEgress))
		case from.Addr.IsValid():
			r.SourcePolicies = PolicyTexts(netpolicy.OfAddr(ctx, c, from.Addr, networkingv1.PolicyTypeEgress))
		}
		if !slices.ContainsFunc(answer.Destinations, func(t access.Destination) bool { return t.Allowed && t.Cluster == c.Name }) {
			continue
		}
		if namespace, name, export := strings.Cut(to.Export, "/"); export {
			r.DestinationPolicies[c.Name] = PolicyTexts(netpolicy.OfService(ctx, c, namespace, name))
		} else {
			r.DestinationPolicies[c.Name] = PolicyTexts(netpolicy.OfAddr(ctx, c, to.Addr, networkingv1.PolicyTypeIngress))
		}
	}
}

// PolicyTexts returns policies, or the error that hides them.
func PolicyTexts(policies []string, err error) []string {
	if err != nil {
		return []string{"failed to read NetworkPolicies: " + kubeclient.ErrorText(err)}
	}
	return policies
}
