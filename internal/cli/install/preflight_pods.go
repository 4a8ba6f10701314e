package install

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/nodeagent/portcheck"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/firewall"
)

const (
	podTimeout   = 2 * time.Minute  // for the start of preflight pods, with the pull of their image
	portTimeout  = 15 * time.Second // for the reply of a port after all its pods run
	maxPorts     = 16               // tested ports per gateway, the first ones
	smallestMTU  = 1360             // minimum MTU of a path for IPv6 in WireGuard (nodeagent/portcheck)
	maxClockSkew = 5 * time.Second  // maximum clock difference between gateways without a finding
)

// portResult is the result of one gateway's requests to an endpoint of another gateway.
type portResult struct {
	From string `json:"from"` // CLUSTER/GATEWAY
	To   string `json:"to"`   // CLUSTER/GATEWAY
	Port int    `json:"port"` // on the node
	At   string `json:"at"`   // host:port
	portcheck.Target
}

// probePod is the preflight pod of a gateway.
type probePod struct {
	gateway *fabric.Gateway
	cluster string
	ports   []int
	targets []portResult
	state   kubeclient.PodState
	report  *portcheck.Report // nil = the pod has not reported yet
	// agentRuns reports whether a Hawser agent runs on the node, or may run there.
	agentRuns bool
}

func (p *probePod) name() string { return p.cluster + "/" + p.gateway.Name }

// newProbePods returns one pod per gateway, with the ports that it opens and the endpoints that it
// tests.
func newProbePods(f *fabric.Fabric, clusters []*kubeclient.Client) []*probePod {
	set := firewall.New(f)
	var out []*probePod
	rules := map[string][]firewall.Rule{}
	for _, c := range clusters {
		for _, o := range set.RulesFor(c.Name) {
			if o.Purpose == firewall.PurposeLinks && o.Protocol == firewall.UDP {
				rules[c.Name] = append(rules[c.Name], o)
			}
		}
	}
	for _, c := range clusters {
		of := f.Cluster(c.Name)
		for i := range of.Gateways {
			p := &probePod{gateway: &of.Gateways[i], cluster: c.Name}
			for _, o := range rules[c.Name] {
				if o.Gateway == p.gateway.Name {
					for port := o.First; port <= o.Last && len(p.ports) < maxPorts; port++ {
						p.ports = append(p.ports, port)
					}
				}
			}
			for _, other := range clusters {
				for _, o := range rules[other.Name] {
					if slices.Contains(o.From, c.Name) {
						p.targets = append(p.targets, targets(p.name(), o)...)
					}
				}
			}
			out = append(out, p)
		}
	}
	return out
}

// targets returns the endpoints of a firewall rule with all of its ports. It omits discovered
// endpoints, because agents have not announced them yet.
func targets(from string, o firewall.Rule) []portResult {
	var out []portResult
	for port := o.First; port <= min(o.Last, o.First+maxPorts-1); port++ {
		for _, at := range o.Destinations {
			if fabric.IsEndpointSource(at.Host) {
				continue
			}
			remotePort := port
			if at.First > 0 {
				remotePort = at.First + port - o.First
			}
			out = append(out, portResult{From: from, To: o.Cluster + "/" + o.Gateway, Port: port, At: net.JoinHostPort(at.Host, strconv.Itoa(remotePort))})
		}
	}
	return out
}

// checkPorts runs a pod on each gateway's node. The pods listen on the ports of the tunnels and
// send requests to the endpoints of the other gateways. It deletes the pods before it returns.
func checkPorts(ctx context.Context, env *cli.Env, f *fabric.Fabric, clusters []*kubeclient.Client, image string) (map[string]diag.List, []portResult, error) {
	defer env.Progress("testing ports between gateways, in temporary pods")()
	key := make([]byte, 16)
	if _, err := rand.Read(key); err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	all := newProbePods(f, clusters)
	testPods, failed := make([]*kubeclient.TestPods, len(clusters)), make([]error, len(clusters))
	defer kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) {
		if err := testPods[i].Cleanup(ctx); err != nil {
			env.LogCluster(c.Name, "pods of the preflight may be left, in a namespace hawser-preflight-...: "+kubeclient.ErrorText(err))
		}
	})
	kubeclient.ForEach(clusters, func(i int, c *kubeclient.Client) {
		var list []kubeclient.TestPod
		for _, p := range all {
			if p.cluster == c.Name {
				list = append(list, p.testPod(image, hex.EncodeToString(key)))
			}
		}
		if agents, err := c.RunningAgents(ctx); err == nil { // on an error, the ports alone decide
			for _, p := range all {
				p.agentRuns = p.agentRuns || p.cluster == c.Name && p.hasAgent(agents)
			}
		}
		testPods[i], failed[i] = c.StartPods(ctx, kubeclient.RandomName("hawser-preflight-"), list)
	})
	end, running := time.Now().Add(podTimeout), time.Time{}
	for {
		states := make([]map[string]kubeclient.PodState, len(clusters))
		kubeclient.ForEach(clusters, func(i int, _ *kubeclient.Client) {
			if failed[i] == nil {
				states[i], failed[i] = testPods[i].States(ctx)
			}
		})
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		for i, c := range clusters {
			for _, p := range all {
				if p.cluster == c.Name {
					p.apply(states[i][p.gateway.Name], failed[i])
				}
			}
		}
		if !slices.ContainsFunc(all, (*probePod).isStarting) && running.IsZero() {
			running = time.Now()
		}
		timedOut := time.Now().After(end) || !running.IsZero() && time.Since(running) > portTimeout
		if timedOut || !slices.ContainsFunc(all, (*probePod).incomplete) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	findings := map[string]diag.List{}
	var out []portResult
	for _, p := range all {
		findings[p.cluster] = append(append(findings[p.cluster], p.findings(all)...), p.connected(f)...)
		out = append(out, p.targets...)
	}
	return findings, out, nil
}

// hasAgent reports whether one of these pods runs on the gateway's node. If the node is not fixed,
// every pod counts.
func (p *probePod) hasAgent(agents []unstructured.Unstructured) bool {
	return slices.ContainsFunc(agents, func(o unstructured.Unstructured) bool {
		node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
		return p.gateway.Node == "" || node == p.gateway.Node
	})
}

func (p *probePod) testPod(image, key string) kubeclient.TestPod {
	args := []string{"portcheck", "--key", key, "--for", (podTimeout + time.Minute).String()}
	for _, port := range p.ports {
		args = append(args, "--listen", strconv.Itoa(port))
	}
	for _, t := range p.targets {
		args = append(args, "--to", t.At)
	}
	return kubeclient.TestPod{Name: p.gateway.Name, Node: p.gateway.Node, NodeSelector: p.gateway.NodeSelector, Image: image, Args: args}
}

// apply stores the state of the pod and its last report.
func (p *probePod) apply(state kubeclient.PodState, failed error) {
	p.state = state
	if failed != nil {
		p.state = kubeclient.PodState{Reason: kubeclient.ErrorText(failed)}
	}
	var r portcheck.Report
	if len(state.Last) == 0 || json.Unmarshal(state.Last, &r) != nil || len(r.Targets) != len(p.targets) {
		return
	}
	p.report = &r
	for i := range p.targets {
		p.targets[i].Target = r.Targets[i]
	}
}

// isStarting reports whether the pod may still start and report.
func (p *probePod) isStarting() bool { return p.report == nil && !p.state.Image }

// incomplete reports whether the pod has missing results.
func (p *probePod) incomplete() bool {
	return p.isStarting() || slices.ContainsFunc(p.targets, func(t portResult) bool { return t.Answered < 3 && p.report != nil })
}

// findings returns the problems with the ports and paths of one gateway.
func (p *probePod) findings(all []*probePod) diag.List {
	var out diag.List
	path := "clusters[" + p.cluster + "].gateways[" + p.gateway.Name + "]"
	add := func(severity diag.Severity, code, hint, format string, args ...any) {
		out = append(out, diag.Diagnostic{Severity: severity, Code: code, Path: path, Summary: fmt.Sprintf(format, args...), Hint: hint})
	}
	switch {
	case p.state.Image && p.report == nil:
		add(diag.Error, "image-not-pulled", "name the image that is in your registry with spec.agent.image or --image, and let the node pull it",
			"node %s cannot get the agent's image: %s", p.gateway.NodeText(), p.state.Reason)
	case p.report == nil:
		add(diag.Warning, "pod-not-started", "the ports of this gateway were not tested: find out why pods do not run on its node",
			"no pod runs on node %s: %s", p.gateway.NodeText(), cmp.Or(p.state.Reason, "it printed nothing"))
	}
	if p.report == nil {
		return out
	}
	for _, port := range p.report.Ports {
		switch {
		case port.Error == "":
		case p.agentRuns:
			add(diag.Warning, "ports-not-tested", "hawser show connections shows which links are up",
				"an agent runs on node %s already and uses the ports, so they were not tested", p.gateway.NodeText())
			return out
		default:
			add(diag.Warning, "port-in-use", "stop the program that uses the port, or choose other ports with tunnel.port",
				"another program uses UDP %d of node %s: %s", port.Port, p.gateway.NodeText(), port.Error)
		}
	}
	closed := map[string][]string{} // peer addresses by gateway
	var order []string
	reported := map[string]bool{}
	for _, t := range p.targets {
		other := all[slices.IndexFunc(all, func(o *probePod) bool { return o.name() == t.To })]
		switch {
		case !other.listens(t.Port):
		case t.Answered == 0:
			if closed[t.To] == nil {
				order = append(order, t.To)
			}
			closed[t.To] = append(closed[t.To], strings.TrimSuffix(t.At+" ("+t.Error+")", " ()"))
		case t.Largest < smallestMTU && !reported[t.To]:
			reported[t.To] = true
			sizes := portcheck.Sizes()
			next := sizes[min(slices.Index(sizes, t.Largest)+1, len(sizes)-1)]
			add(diag.Warning, "path-mtu-small", "look for a tunnel or a VPN on the path; Hawser makes packets smaller, but IPv6 needs 1280 bytes inside",
				"packets of %d bytes pass to %s at %s, and none of %d", t.Largest, t.To, t.At, next)
		}
		if ahead := time.Duration(t.ClockOffset) * time.Millisecond; t.Answered > 0 && ahead.Abs() > maxClockSkew && !reported["clock "+t.To] {
			reported["clock "+t.To] = true
			add(diag.Warning, "clock-skew", "synchronize the clocks of both nodes (NTP)", "the clock of %s is %s from this gateway's", t.To, ahead.Abs().Round(time.Second))
		}
	}
	for _, to := range order {
		severity, note := diag.Error, ""
		other := all[slices.IndexFunc(all, func(o *probePod) bool { return o.name() == to })]
		if other.reaches(p.name()) {
			severity, note = diag.Warning, ", which itself reaches this gateway: the link begins from there"
		}
		add(severity, "port-closed", "hawser firewall prints what has to be let in; check the endpoints of "+to+", too",
			"%s does not answer at UDP %s%s", to, strings.Join(closed[to], ", "), note)
	}
	return out
}

// connected reports networks of the gateway's node that overlap prefixes of other clusters.
func (p *probePod) connected(f *fabric.Fabric) diag.List {
	if p.report == nil {
		return nil
	}
	var out diag.List
	member := f.Cluster(p.cluster)
	for i := range f.Clusters {
		c := &f.Clusters[i]
		if c.Name == p.cluster {
			continue
		}
		for _, prefix := range c.SeenFrom(member) {
			for _, n := range p.report.Networks {
				if prefix.Overlaps(n.Prefix) {
					out = append(out, diag.Diagnostic{Severity: diag.Warning, Code: status.ConnectedNetwork,
						Path: "clusters[" + p.cluster + "].gateways[" + p.gateway.Name + "]",
						Summary: fmt.Sprintf("node %s is connected to %s on %s, which overlaps %s of cluster %s: it sends nothing for these addresses to the cluster",
							p.gateway.NodeText(), n.Prefix, n.Link, prefix, c.Name),
						Hint: "use other addresses for the network or the cluster, or globalnet: always for the cluster if these are its pods or Services"})
				}
			}
		}
	}
	return out
}

// reaches reports whether another gateway replied to this pod.
func (p *probePod) reaches(other string) bool {
	return slices.ContainsFunc(p.targets, func(t portResult) bool { return t.To == other && t.Answered > 0 })
}

// listens reports whether any gateway received a reply from a port of this gateway's node.
func (p *probePod) listens(port int) bool {
	return p.report != nil && slices.ContainsFunc(p.report.Ports, func(o portcheck.Port) bool { return o.Port == port && o.Error == "" })
}
