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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/explainview"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/nodeagent/cluster/kube"
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
		mounted: input.OpenMounted(input.Config{Cluster: f.Clusters[0], FabricDir: f.page.fabric, Trust: f.page.trust, StateDir: f.page.state, Log: log}),
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("listen for browsers: %w", err)
	}
	server := ui.New(ui.Config{Source: source, Every: f.every, Log: log, Hosts: slices.Concat(serviceHosts(), f.page.hosts), Token: token,
		Probe: source.problems, LiveCluster: source.cluster, HiddenViews: []string{"change", "follow"}, Version: env.Version})
	if err := printURL(env, server, listener, f.page.hosts, token != ""); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { source.mounted.Run(ctx); return nil })
	group.Go(func() error { source.nodes.Run(ctx); return nil })
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
// has the fabric, and the HawserNodes of the cluster.
type clusterSource struct {
	env     *cli.Env
	cluster string
	mounted *input.FabricWatcher
	nodes   *kube.Nodes

	mu   sync.Mutex
	read *ui.Clusterset // from the current fabric
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
	if f != nil && (s.read == nil || s.read.Fabric != f) {
		s.read = &ui.Clusterset{Fabric: f, Sources: []string{"fabric " + digest}, PositionOf: func(string) string { return "" }}
	}
	return s.read, err
}

// Agents returns the reports in the HawserNodes of the cluster.
func (s *clusterSource) Agents(ctx context.Context) (ui.Reports, error) {
	told, err := s.nodes.Current()
	out := ui.Reports{HasAgents: true, From: "HawserNodes of " + s.cluster}
	set, _ := s.Clusterset(ctx) // the page shows its error
	if set == nil {
		return out, err
	}
	own := set.Fabric.Cluster(s.cluster)
	heard := map[string]bool{}
	for _, node := range slices.Sorted(maps.Keys(told)) {
		if told[node].Cluster != s.cluster {
			continue // of another clusterset, or outdated
		}
		made := statusOf(node, told[node], own)
		heard[made.Gateway] = true
		out.Agents = append(out.Agents, made)
	}
	for i := 0; own != nil && err == nil && i < len(own.Gateways); i++ {
		if g := &own.Gateways[i]; !heard[g.Name] {
			out.Unreachable = append(out.Unreachable, status.Unreachable{Agent: s.cluster + "/" + g.Name, Cluster: s.cluster, Node: g.Node, Error: "no HawserNode reports this gateway"})
		}
	}
	return out, err
}

// statusOf converts the status of a HawserNode to an agent's status. Missing fields stay empty.
func statusOf(node string, told kube.NodeStatus, own *fabric.Cluster) status.Status {
	out := status.Status{Cluster: told.Cluster, Node: node, Gateway: told.Gateway, Version: told.Version, Digest: told.Fabric, Inputs: []status.InputState{}, Problems: told.Problems}
	if out.Gateway == "" && told.Role == kube.Gateway && own != nil { // a decommission fabric has no clusters
		if g := own.GatewayOn(node); g != nil {
			out.Gateway = g.Name
		}
	}
	for _, c := range told.Conditions {
		is := c.Status == metav1.ConditionTrue
		switch c.Type {
		case status.ConditionReady:
			out.Ready = is
		case status.ConditionDrained:
			out.Drained = is
		}
	}
	if told.Links != nil && told.Links.Total > len(told.LinkStates) {
		out.Problems = append(out.Problems, status.Problem{Code: "omitted", Severity: status.Info,
			Text: fmt.Sprintf("its HawserNode lists %d of %d links: those that are down or in use first", len(told.LinkStates), told.Links.Total)})
	}
	for _, l := range told.LinkStates {
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
	return drawnAnswer{answer, swimlane.Draw("", explainview.Swimlanes(answer, c.PositionOf))}, nil
}

// Diagnose is unavailable because the page sends no requests to agents.
func (s *clusterSource) Diagnose(context.Context, time.Duration, []string, []string) (*packettrace.Report, error) {
	return nil, ui.ErrUnavailable
}
