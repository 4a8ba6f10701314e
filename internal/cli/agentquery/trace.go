package agentquery

import (
	"context"
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/netpolicy"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/view/packettrace"
)

// TracePackets sends a diagnose request to the agents, and joins the traces.
func TracePackets(ctx context.Context, f Targets, q Request) (*packettrace.Report, error) {
	agents, err := f.Agents()
	if err != nil {
		return nil, err
	}
	got, unreachable := QueryAgents[status.Diagnosis](ctx, agents, q)
	var nodes []packettrace.NodeTrace
	for _, r := range got {
		if r.Value.Node == "" {
			unreachable = append(unreachable, status.Unreachable{Agent: r.Agent, Error: "the agent is older than this hawser and does not report traces"})
			continue
		}
		nodes = append(nodes, packettrace.NodeTrace{Diagnosis: r.Value, Start: r.at.Add(-time.Duration(r.Value.Seconds * float64(time.Second)))})
	}
	r := packettrace.NewReport(nodes, unreachable)
	addPolicies(ctx, agents.Clusters, r)
	return r, nil
}

// maxPolicyHops bounds the hops whose NetworkPolicies are read.
const maxPolicyHops = 20

// addPolicies adds the NetworkPolicies that may have dropped packets, or the reason why they are
// unknown.
func addPolicies(ctx context.Context, clusters []*kubeclient.Client, r *packettrace.Report) {
	type policyQuery struct {
		cluster   string
		addr      netip.Addr
		direction networkingv1.PolicyType
	}
	policies := map[policyQuery][]string{}
	hops := r.PolicyHops()
	for _, hop := range hops[:min(len(hops), maxPolicyHops)] {
		i := slices.IndexFunc(clusters, func(c *kubeclient.Client) bool { return c.Name == hop.Cluster })
		if i < 0 {
			continue
		}
		var queries []policyQuery
		for _, a := range hop.Sources() {
			queries = append(queries, policyQuery{hop.Cluster, a, networkingv1.PolicyTypeEgress})
		}
		for _, a := range hop.Destinations() {
			queries = append(queries, policyQuery{hop.Cluster, a, networkingv1.PolicyTypeIngress})
		}
		for _, q := range queries {
			if _, ok := policies[q]; !ok {
				policies[q] = PolicyTexts(netpolicy.OfAddr(ctx, clusters[i], q.addr, q.direction))
			}
			for _, text := range policies[q] {
				if !slices.Contains(hop.Policies, text) {
					hop.Policies = append(hop.Policies, text)
				}
			}
		}
	}
}
