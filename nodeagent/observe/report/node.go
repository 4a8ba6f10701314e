package report

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hawser.dev/hawser/nodeagent/cluster/kube"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/status"
)

// Node returns the status of this node's HawserNode.
func (r *Reporter) Node() kube.NodeStatus {
	s := r.Summary()
	problems := s.Problems
	if s.Gateway == "" { // only gateways write the problems that all nodes report
		problems = slices.DeleteFunc(problems, func(p status.Problem) bool { return r.catalog.Code(p.Code).Shared })
	}
	problems = r.catalog.Summarize(problems)
	out := kube.NodeStatus{
		Cluster: s.Cluster, Role: kube.Worker, Version: s.Version, Fabric: s.Digest, Problems: problems,
		Conditions: []metav1.Condition{r.condition(status.ConditionReady, "Converged", problems), r.current(s.Inputs, problems)},
	}
	out.FabricProof, out.KeysProof = r.config.Inputs.Proofs()
	out.NodeNetwork = countPaths(s.Nodes)
	v := r.config.Outcome()
	switch {
	case v.Node == nil: // before the first round
	case v.Node.Decommission:
		out.RulesRemoved = true
	case rulesInPlace(v.Report):
		out.RulesBootID = r.boot()
		out.Lost = !v.Input.AcceptedByNodes()
	}
	if s.Gateway == "" {
		return out
	}
	out.Role, out.Up = kube.Gateway, map[string]bool{}
	if holders, _ := r.config.Elector.Holders(); holders[s.Gateway] == s.Node {
		out.Gateway = s.Gateway
	}
	out.Links = &kube.LinkCount{Total: len(s.Connections)}
	links := make([]kube.LinkState, 0, len(s.Connections))
	for _, c := range s.Connections {
		links = append(links, linkState(&c))
		up := c.Status == status.Connected
		out.Up[s.Cluster+"/"+c.Gateway+"-"+c.RemoteCluster+"/"+c.RemoteGateway] = up
		if up {
			out.Links.Up++
		}
	}
	out.LinkStates = kube.ListLinks(links)
	drain := metav1.Condition{Type: status.ConditionDrainRequested, Status: metav1.ConditionFalse, Reason: "NotDrained"}
	if s.Drained {
		drain.Status, drain.Reason = metav1.ConditionTrue, "Drained"
		drain.Message = "traffic moves to other gateways if there are any"
	}
	out.Conditions = append(out.Conditions, drain)
	return out
}

// countPaths returns how many paths to other nodes are direct; nil without paths.
func countPaths(nodes []status.NodePath) *kube.NodePathCount {
	if len(nodes) == 0 {
		return nil
	}
	out := &kube.NodePathCount{}
	for _, n := range nodes {
		if n.Path == status.NodeDirect {
			out.Direct++
			continue
		}
		out.VXLAN++
		out.Reason = cmp.Or(out.Reason, n.Reason)
	}
	return out
}

// rulesInPlace reports whether a round left the node's nftables rules and set elements in the
// desired state.
func rulesInPlace(report converge.Report) bool {
	for _, p := range slices.Concat(report.Blocked, report.Failed, report.Fights, report.Deferred) {
		if strings.HasPrefix(p.Kind, "nft ") {
			return false
		}
	}
	return !report.Interrupted
}

func linkState(c *status.Connection) kube.LinkState {
	out := kube.LinkState{Gateway: c.Gateway, RemoteCluster: c.RemoteCluster, RemoteGateway: c.RemoteGateway, Endpoint: c.Endpoint, Active: c.Active,
		State: kube.LinkConnecting, Loss: int(math.Round(c.Loss * 1000))}
	switch c.Status {
	case status.Connected:
		out.State = kube.LinkUp
	case status.Disconnected:
		out.State = kube.LinkDown
	}
	if !c.Since.IsZero() {
		out.Since = c.Since.UTC().Format(time.RFC3339)
	}
	if c.RTT != nil {
		out.RTT = c.RTT.Avg
	}
	return out
}

// condition returns the condition kind. It is false if the code of a problem has this condition.
// Otherwise it is true, with the reason good.
func (r *Reporter) condition(kind, good string, problems []status.Problem) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: good}
	var texts []string
	for _, p := range problems {
		code := r.catalog.Code(p.Code)
		if code.Condition != kind {
			continue
		}
		if len(texts) == 0 {
			c.Status, c.Reason = metav1.ConditionFalse, code.Reason
		}
		texts = append(texts, p.Text)
	}
	c.Message = strings.Join(texts, "; ")
	return c
}

// current returns the condition Current. If the agent refuses a document, the reason of the
// condition states why.
func (r *Reporter) current(inputs []status.InputState, problems []status.Problem) metav1.Condition {
	c := r.condition(status.ConditionCurrent, "InputsRead", problems)
	for _, i := range inputs {
		if i.Refused != "" { // a condition's reason is one word in CamelCase
			c.Reason = "Refused"
			for word := range strings.SplitSeq(i.Refused, "-") {
				c.Reason += strings.ToUpper(word[:1]) + word[1:]
			}
			break
		}
	}
	return c
}
