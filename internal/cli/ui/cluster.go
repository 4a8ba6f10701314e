//go:build linux

package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hawser.dev/hawser/health"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/explainview"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/kubeclient/clusterstatus"
	"hawser.dev/hawser/nodeagent/cluster/kube"
	"hawser.dev/hawser/nodeagent/cluster/listwatch"
	"hawser.dev/hawser/nodeagent/input"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/view/packettrace"
	"hawser.dev/hawser/view/swimlane"
	"hawser.dev/hawser/view/ui"
)

// serviceHosts returns the host names of the page's Service in its cluster. Only complete names
// match: anyone could own a longer name with such a prefix.
func serviceHosts() []string {
	name := render.UIName + "." + render.Namespace
	return []string{render.UIName, name, name + ".svc", name + ".svc.cluster.local"}
}

// clusterPage serves the page in a cluster until ctx ends.
func clusterPage(ctx context.Context, env *cli.Env, f uiFlags) error {
	if len(f.Clusters) != 1 || len(f.Access.Kubeconfigs) > 1 || len(f.Access.Contexts)+len(f.Sockets) > 0 || f.Lab != "" || f.live {
		return errors.New("--in-cluster: name the cluster that the page is in (--cluster fra), and outside of a pod its --kubeconfig; it asks no agents")
	}
	token, err := readToken(f.page.tokenFile)
	if err != nil {
		return err
	}
	config := kube.Config{InCluster: len(f.Access.Kubeconfigs) == 0, Kubeconfig: strings.Join(f.Access.Kubeconfigs, ""), UserAgent: "hawser-ui/" + env.Version}
	client, err := kube.Open(config)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(env.Err, nil))
	source := &clusterSource{
		env: env, cluster: f.Clusters[0], nodes: kube.NewNodes(client),
		pods: &listwatch.Cache[clusterstatus.AgentPod]{
			Client: client.Dynamic, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: render.Namespace, Convert: clusterstatus.PodOf,
		},
		mounted: input.OpenMounted(input.Config{Cluster: f.Clusters[0], FabricDir: f.page.fabric, Trust: f.page.trust, StateDir: f.page.state, Log: log}),
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("listen for browsers: %w", err)
	}
	server := ui.New(ui.Config{Source: source, Interval: f.interval, Log: log, Hosts: slices.Concat(serviceHosts(), f.page.hosts), Token: token,
		Probe: source.problems, LiveCluster: source.cluster, HiddenViews: []string{"change", "follow"}, Version: env.Version})
	if err := printURL(env, server, listener, f.page.hosts, token != ""); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { source.mounted.Run(ctx); return nil })
	group.Go(func() error { source.nodes.Run(ctx); return nil })
	group.Go(func() error { source.pods.Run(ctx); return nil })
	group.Go(func() error { return server.Serve(ctx, listener) })
	return group.Wait()
}

// printURL prints the URLs of the page. They contain the token only if the page created it, because
// then no user knows it.
func printURL(env *cli.Env, server *ui.Server, listener net.Listener, hosts []string, given bool) error {
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return fmt.Errorf("listen for browsers: %w", err)
	}
	origins := []string{"http://127.0.0.1:" + port}
	for _, host := range hosts {
		origins = append(origins, "https://"+host)
	}
	var out strings.Builder
	_, _ = fmt.Fprintf(&out, "the page of the clusterset; through kubectl -n %s port-forward deploy/%s %s, or an ingress:\n", render.Namespace, render.UIName, port)
	for _, origin := range origins {
		if given {
			_, _ = fmt.Fprintf(&out, "%s/?#token=... with the token of its Secret\n", origin)
		} else {
			_, _ = fmt.Fprintln(&out, server.URL(origin))
		}
	}
	if _, err := io.WriteString(env.Out, out.String()); err != nil {
		return fmt.Errorf("write where the page is: %w", err)
	}
	return nil
}

// readToken reads the token of a Secret; empty without a file.
func readToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if err := ui.CheckToken(token); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return token, nil
}

// clusterSource is the data source of a page inside a cluster. It sends no requests to agents: it
// has the fabric, the HawserNodes of the cluster and the state of the agents' pods.
type clusterSource struct {
	env     *cli.Env
	cluster string
	mounted *input.FabricWatcher
	nodes   *kube.Nodes
	pods    *listwatch.Cache[clusterstatus.AgentPod]

	mu     sync.Mutex
	cached *ui.Clusterset // from the current fabric
}

// problems returns an error if the page has no data. Outdated data is no error.
func (s *clusterSource) problems() error {
	if f, _, err := s.mounted.Current(); f == nil {
		return err
	}
	return nil
}

// Clusterset returns the clusterset of the mounted fabric. It has no positions in a topology file.
func (s *clusterSource) Clusterset(context.Context) (*ui.Clusterset, error) {
	f, digest, err := s.mounted.Current()
	s.mu.Lock()
	defer s.mu.Unlock()
	if f != nil && (s.cached == nil || s.cached.Fabric != f) {
		s.cached = &ui.Clusterset{Fabric: f, Sources: []string{"fabric " + digest}, PositionOf: func(string) string { return "" }}
	}
	return s.cached, err
}

// Agents returns the reports in the HawserNodes of the cluster. If the API server does not return
// them or the agents' pods, the error says why, and the reports may be old.
func (s *clusterSource) Agents(ctx context.Context) (ui.Reports, error) {
	nodes, err := s.nodes.Current()
	pods, synced := s.pods.Objects()
	switch podErr := s.pods.Err(); {
	case podErr != nil:
		err = errors.Join(err, fmt.Errorf("read the pods of %s: %w", render.Namespace, podErr))
	case !synced:
		err = errors.Join(err, fmt.Errorf("not all pods of %s were read yet", render.Namespace))
	}
	set, _ := s.Clusterset(ctx) // the page shows its error
	if set == nil {
		return ui.Reports{HasAgents: true, From: s.from()}, err
	}
	return reportsOf(s.cluster, set.Fabric.Cluster(s.cluster), s.from(), nodes, pods, err), err
}

func (s *clusterSource) from() string { return "HawserNodes of " + s.cluster }

// reportsOf returns the reports of a cluster's agents. A report is old if the pod of its agent is
// missing, stopped or unresponsive (health.State.Unresponsive). If err is not nil, nodes and pods may
// be incomplete, so a missing pod does not make a report old.
func reportsOf(cluster string, member *fabric.Cluster, from string, nodes map[string]kube.NodeStatus, pods []clusterstatus.AgentPod, err error) ui.Reports {
	out := ui.Reports{HasAgents: true, From: from}
	byNode := map[string]clusterstatus.AgentPod{}
	for _, pod := range pods {
		if known, found := byNode[pod.Node]; pod.Node != "" && (!found || !known.Ready) {
			byNode[pod.Node] = pod
		}
	}
	var all []status.Status
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		if nodes[node].Cluster == cluster { // not of another clusterset, or outdated
			all = append(all, statusOf(node, nodes[node], member))
		}
	}
	state := health.State{Cluster: cluster, Pods: int64(len(byNode))}
	if states := health.StatesOf(all); len(states) > 0 {
		state.Nodes = states[0].Nodes
	}
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		switch pod := byNode[node]; {
		case pod.Stopped:
			state.Stopped = append(state.Stopped, pod.Pod)
		default:
			state.Running++
			if !pod.Ready {
				state.NotReady = append(state.NotReady, pod.Pod)
			}
		}
	}
	reported := map[string]bool{} // gateways
	for i := range all {
		report := &all[i]
		reported[report.Gateway] = true
		pod, found := byNode[report.Node]
		_, unresponsive := state.Unresponsive(&state.Nodes[i])
		reason := ""
		switch {
		case !found && err == nil:
			reason = "no pod of the agent is on this node"
		case pod.Stopped:
			reason = "pod " + pod.Name + " does not run"
		case unresponsive:
			reason = "pod " + pod.Name + " is not ready"
		}
		if reason == "" {
			out.Agents = append(out.Agents, *report)
			continue
		}
		out.Old = append(out.Old, *report)
		out.Unreachable = append(out.Unreachable, status.Unreachable{Agent: cluster + "/" + report.Node, Cluster: cluster, Node: report.Node, Error: reason})
	}
	for i := 0; member != nil && err == nil && i < len(member.Gateways); i++ {
		if g := &member.Gateways[i]; !reported[g.Name] {
			out.Unreachable = append(out.Unreachable, status.Unreachable{Agent: cluster + "/" + g.Name, Cluster: cluster, Node: g.Node, Error: "no HawserNode reports this gateway"})
		}
	}
	if err == nil {
		out.Problems = health.Assess([]health.State{state})
	}
	return out
}

// statusOf converts the status of a HawserNode to an agent's status. Missing fields stay empty.
func statusOf(node string, current kube.NodeStatus, member *fabric.Cluster) status.Status {
	out := status.Status{Cluster: current.Cluster, Node: node, Gateway: current.Gateway, Version: current.Version, Digest: current.Fabric, Inputs: []status.InputState{}, Problems: current.Problems}
	if out.Gateway == "" && current.Role == kube.Gateway && member != nil { // a decommission fabric has no clusters
		if g := member.GatewayOn(node); g != nil {
			out.Gateway = g.Name
		}
	}
	for _, c := range current.Conditions {
		is := c.Status == metav1.ConditionTrue
		switch c.Type {
		case status.ConditionReady:
			out.Ready = is
		case status.ConditionDrainRequested:
			out.Drained = is
		}
	}
	if current.Links != nil && current.Links.Total > len(current.LinkStates) {
		out.Problems = append(out.Problems, status.Problem{Code: "omitted", Severity: status.Info,
			Text: fmt.Sprintf("its HawserNode lists %d of %d links: those that are down or in use first", len(current.LinkStates), current.Links.Total)})
	}
	for _, l := range current.LinkStates {
		c := status.Connection{Gateway: l.Gateway, RemoteCluster: l.RemoteCluster, RemoteGateway: l.RemoteGateway, Active: l.Active,
			Status: status.Connecting, Loss: float64(l.Loss) / 1000}
		switch l.State {
		case kube.LinkUp:
			c.Status = status.Connected
		case kube.LinkDown:
			c.Status = status.Disconnected
		}
		if l.RTT > 0 {
			c.RTT = &status.RTT{Avg: l.RTT}
		}
		out.Connections = append(out.Connections, c)
	}
	return out
}

// History is unavailable because it needs git.
func (s *clusterSource) History(context.Context) (any, error) { return nil, ui.ErrUnavailable }

// Plan is unavailable because it compares commits.
func (s *clusterSource) Plan(context.Context, string, string) (any, error) {
	return nil, ui.ErrUnavailable
}

// Explain explains from the fabric alone, like hawser explain without --live.
func (s *clusterSource) Explain(ctx context.Context, from, to string) (any, error) {
	set, err := s.Clusterset(ctx)
	if set == nil {
		return nil, err
	}
	c := topofile.Compiled{Fabric: set.Fabric}
	answer, err := explainview.Explain(ctx, s.env, c, []string{from, to}, explainview.Flags{})
	if err != nil {
		return nil, ui.UserError(err.Error())
	}
	return explanation{answer, swimlane.Draw("", explainview.Swimlanes(answer, c.PositionOf))}, nil
}

// Diagnose is unavailable because the page sends no requests to agents.
func (s *clusterSource) Diagnose(context.Context, time.Duration, []string, []string) (*packettrace.Report, error) {
	return nil, ui.ErrUnavailable
}
