package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hawser.dev/hawser/nodeagent/cluster/kube"
	"hawser.dev/hawser/nodeagent/cluster/publisher"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/observe/metrics"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
)

// Node returns the status of this node's HawserNode.
func (r *Reporter) Node() kube.NodeStatus {
	s := r.Summary()
	out := kube.NodeStatus{
		Cluster: s.Cluster, Role: kube.Worker, Version: s.Version, Fabric: s.Digest,
		LastError:  cmp.Or(strings.Join(s.LastPass.Failed, "; "), inputErrors(s), errorsOf(s, publisher.Input)),
		Conditions: []metav1.Condition{readyCondition(s), currentCondition(s)},
	}
	out.FabricProof, out.KeysProof = r.config.Inputs.Proofs()
	texts := func(codes ...string) string {
		var out []string
		for _, p := range s.Problems {
			if slices.Contains(codes, p.Code) {
				out = append(out, p.Text)
			}
		}
		return strings.Join(out, "; ")
	}
	out.LastError = cmp.Or(out.LastError, texts(projection.PodsOutside, status.UnknownSource, projection.ForeignRule, projection.ConnectedNetwork))
	v := r.config.Outcome()
	switch {
	case v.Node == nil: // rules not read yet
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
	out.LastError = cmp.Or(out.LastError, strings.Join(metrics.ForeignImports(s), "; "),
		texts(projection.EndpointRefused, projection.EndpointsOutside, projection.TooManyEndpoints, projection.TooManyHosts, projection.ServiceType))
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
	drained := condition(kube.ConditionDrained, s.Drained, "Drained", "InUse")
	if s.Drained {
		drained.Message = "traffic uses other gateways if there are any"
	}
	out.Conditions = append(out.Conditions, drained)
	return out
}

// rulesInPlace reports whether a round left the table and the elements of the node in the desired
// state.
func rulesInPlace(report converge.Report) bool {
	for _, p := range slices.Concat(report.Blocked, report.Failed, report.Fights, report.Deferred) {
		if strings.HasPrefix(p.Kind, "nft ") {
			return false
		}
	}
	return !report.Interrupted
}

func linkState(c *status.Connection) kube.LinkState {
	out := kube.LinkState{Gateway: c.Gateway, RemoteCluster: c.RemoteCluster, RemoteGateway: c.RemoteGateway, Endpoint: c.Endpoint, Chosen: c.Chosen,
		State: kube.LinkConnecting, Loss: int(math.Round(c.Loss * 1000))}
	switch c.Status {
	case status.Connected:
		out.State = kube.LinkUp
	case status.Disconnected:
		out.State = kube.LinkDown
	}
	if c.RTT != nil {
		out.RTT = c.RTT.Avg
	}
	return out
}

func condition(kind string, is bool, yes, no string) metav1.Condition {
	if is {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: yes}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: no}
}

func readyCondition(s status.Status) metav1.Condition {
	c := condition(kube.ConditionReady, s.Ready, "Converged", "Converging")
	switch {
	case s.Ready:
	case s.Digest == "":
		c.Reason, c.Message = "NoInputs", inputErrors(s)
	case len(s.LastPass.Failed) > 0:
		c.Reason, c.Message = "Failed", strings.Join(s.LastPass.Failed, "; ")
	case len(s.LastPass.Blocked) > 0:
		c.Reason, c.Message = "Waiting", strings.Join(s.LastPass.Blocked, "; ")
	}
	return c
}

func currentCondition(s status.Status) metav1.Condition {
	errs := inputErrors(s)
	c := condition(kube.ConditionCurrent, errs == "", "InputsRead", "LastGoodCopy")
	for _, i := range s.Inputs {
		if i.Refused != "" { // a condition's reason is one word in CamelCase
			c.Reason = "Refused"
			for word := range strings.SplitSeq(i.Refused, "-") {
				c.Reason += strings.ToUpper(word[:1]) + word[1:]
			}
			break
		}
	}
	c.Message = errs
	return c
}

// inputErrors names the inputs that cannot be read. Feeds of other clusters are part of the links.
func inputErrors(s status.Status) string {
	return errorsOf(s, "fabric", "keys", "facts", "state folder")
}

func errorsOf(s status.Status, names ...string) string {
	var texts []string
	for _, i := range s.Inputs {
		if i.Error != "" && slices.Contains(names, i.Name) {
			texts = append(texts, i.Name+": "+strings.ReplaceAll(i.Error, "\n", "; "))
		}
	}
	return strings.Join(texts, "; ")
}
