// Package report describes a node: its status, the snapshot for metrics, and the status of its
// HawserNode. It only reads the state of the other parts of the agent.
package report

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/nodeagent/cluster/election"
	"hawser.dev/hawser/nodeagent/cluster/kube"
	"hawser.dev/hawser/nodeagent/cluster/publisher"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/input"
	"hawser.dev/hawser/nodeagent/kernel/host"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/observe/metrics"
	"hawser.dev/hawser/nodeagent/peer"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/peer/migration"
	"hawser.dev/hawser/nodeagent/peer/pathmtu"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// Config has the parts of the agent that a Reporter reads.
type Config struct {
	Cluster, Node, Version string
	Log                    *slog.Logger
	Inputs                 *input.Inputs
	Elector                *election.Elector
	Peers                  *peer.Peers
	Host                   *host.Host
	Publication            *publisher.Publisher // nil without a Kubernetes API
	Outcome                func() round.Outcome // of the last round
	State                  func() round.State
	Drained                func() bool
	// DNSDown reports whether the name server does not run although it should.
	DNSDown     func() bool
	Drift       func() int                 // repairs of drift since the start
	ExtraInputs func() []status.InputState // of other inputs with errors
	// Client is the client of the API server that stores the HawserNode. If it is nil, the
	// HawserNode is a file in HawserNodesDir. If that is empty, the Reporter does not write it.
	Client         *kube.Client
	HawserNodesDir string
	Resync         time.Duration // maximum time between two rounds; 0 = converge.Resync
}

// Reporter describes a node. Its methods are safe for concurrent use.
type Reporter struct {
	config  Config
	node    *kube.Reporter // nil without an API server and HawserNodesDir
	boot    func() string  // boot ID of the kernel
	catalog status.Catalog
	drops   recentDrops
}

// New returns a Reporter.
func New(config Config) *Reporter {
	r := &Reporter{config: config, boot: sync.OnceValue(host.BootID), catalog: status.NewCatalog()}
	switch {
	case config.Client != nil:
		r.node = kube.NewReporter(config.Client, config.Node, config.Log, r.Node)
	case config.HawserNodesDir != "":
		r.node = kube.NewFileReporter(config.HawserNodesDir, config.Node, config.Log, r.Node)
	}
	return r
}

// Run writes this node's HawserNode until ctx is done.
func (r *Reporter) Run(ctx context.Context) error {
	if r.node != nil {
		r.node.Run(ctx)
	}
	return nil
}

// Status returns the current status of the agent.
func (r *Reporter) Status() status.Status {
	s := r.Summary()
	if v := r.config.Outcome(); v.Node != nil {
		out := make([]status.Cluster, 0, len(v.Input.Fabric.Clusters))
		for _, c := range v.Input.Fabric.Clusters {
			shown := status.Cluster{
				Name: c.Name, Globalnet: c.Globalnet, EgressMode: c.EgressMode,
				PodCIDRs: humanize.Strings(c.PodCIDRs), ServiceCIDRs: humanize.Strings(c.ServiceCIDRs), GlobalCIDRs: humanize.Strings(c.GlobalCIDRs),
			}
			for _, g := range c.Gateways {
				shown.Gateways = append(shown.Gateways, g.Name)
			}
			out = append(out, shown)
		}
		s.Clusters, s.Exports = out, Exports(v.Input)
	}
	return s
}

// MetricsSnapshot returns the state of the agent for a scrape.
func (r *Reporter) MetricsSnapshot() metrics.Snapshot {
	out := metrics.Snapshot{Status: r.Summary()}
	if f := r.config.Outcome().Input.Fabric; f != nil {
		if own := f.Cluster(r.config.Cluster); own != nil {
			out.Gateways = len(own.Gateways)
			out.Reachable = slices.Sorted(maps.Keys(f.Graph().Paths(own.Name, nil)))
		}
	}
	return out
}

// Ready reports whether the node is in its desired state and its HawserNode is current. The
// readiness probe uses it, so a pod that is not ready may have an old HawserNode.
func (r *Reporter) Ready() bool {
	return len(r.unready(r.config.Outcome())) == 0 && (r.node == nil || !r.node.Outdated())
}

func (r *Reporter) dnsUnavailable(v round.Outcome) bool {
	return !v.Input.Fabric.Decommission && r.config.DNSDown()
}

// Names of inputs that the Reporter adds.
const (
	inputLease  = "gateway lease"
	inputReport = "HawserNode"
)

// Summary returns the status without Clusters and Exports, which are long.
func (r *Reporter) Summary() status.Status {
	v := r.config.Outcome()
	s := status.Status{
		Cluster: r.config.Cluster, Node: r.config.Node, Version: r.config.Version,
		Trust:  r.config.Inputs.Trust(),
		Inputs: slices.Concat(r.config.Inputs.States(), r.config.Peers.States(), r.config.Publication.State(), r.config.ExtraInputs()),
	}
	if err := r.config.Elector.Err(); err != nil {
		s.Inputs = append(s.Inputs, status.InputState{Name: inputLease, Error: err.Error()})
	}
	if r.node != nil && r.node.Err() != nil {
		s.Inputs = append(s.Inputs, status.InputState{Name: inputReport, Error: r.node.Err().Error()})
	}
	now := time.Now()
	if v.Node == nil {
		s.Problems = r.problems(&s, v, now)
		return s
	}
	f := v.Input.Fabric
	s.Digest, s.Clusterset = v.Input.Digest, f.Name
	s.DNSUnavailable, s.Ready = r.dnsUnavailable(v), len(r.unready(v)) == 0
	s.LastRound = status.Round{
		At: v.Report.At, Took: v.Report.Took.String(), Changed: len(v.Report.Changed), Drift: r.config.Drift(),
		Blocked: converge.Texts(v.Report.Blocked), Failed: append(converge.Texts(v.Report.Failed), converge.Texts(v.Report.Fights)...),
	}
	s.Dropped, s.Conntrack = r.config.Host.Dropped(), r.config.Host.Conntrack()
	links := r.config.Peers.Links().WithRetiring(v.Retiring)
	s.Paths, s.Moves = r.config.State().Paths(v.Input, links)
	s.Nodes = nodePaths(r.config.State().RoutedInput().Direct)
	s.Problems = r.problems(&s, v, now)
	s.Drained = r.config.Drained()
	if own := f.Cluster(r.config.Cluster); own != nil {
		if gateway := own.GatewayOn(r.config.Node); gateway != nil {
			s.Gateway, s.Epochs = gateway.Name, epochsOf(v.Input)
			s.Connections = r.connections(v.Node, gateway, links, s.Paths)
		}
	}
	return s
}

// nodePaths returns the paths to other nodes of the cluster.
func nodePaths(nodes []model.DirectNode) []status.NodePath {
	var out []status.NodePath
	for _, n := range nodes {
		p := status.NodePath{Node: n.Node, Addr: n.Addr.String(), Path: status.NodeVXLAN, Reason: n.Reason}
		if n.Active {
			p.Path, p.Device, p.Reason = status.NodeDirect, n.Device, ""
		}
		out = append(out, p)
	}
	return out
}

// epochsOf returns the current epochs for which this gateway has keys.
func epochsOf(in projection.Input) []int {
	var out []int
	for _, epoch := range in.Fabric.Epochs {
		if in.Keys != nil && in.Keys.Epoch(epoch) != nil {
			out = append(out, epoch)
		}
	}
	return out
}

// connections returns each link with its probe results, its tunnel's counters, and why it is in use
// or not.
func (r *Reporter) connections(n *round.DesiredNode, own *fabric.Gateway, links health.Snapshot, paths []status.Path) []status.Connection {
	tunnels := r.config.Host.Tunnels(n)
	inUse := make(map[string]status.Path, len(paths))
	for _, p := range paths {
		inUse[p.Cluster] = p
	}
	holes := r.config.Peers.BlackHoles()
	changes := r.config.Peers.Migrations()
	var out []status.Connection
	for _, link := range links.Links {
		remote := link.Target.Peer
		if link.Target.Device != "" {
			continue // a gateway of this cluster, over NodeDevice
		}
		c := status.Connection{
			Gateway: own.Name, RemoteCluster: remote.Cluster, RemoteGateway: remote.Gateway,
			Status: link.State(), RTT: link.RTT, Loss: link.Loss, Since: link.Since, Rank: link.Rank.String(),
		}
		if made, there := tunnels[remote]; there {
			c.Driver, c.MTU, c.Endpoint, c.RxBytes, c.TxBytes = made.Driver, made.MTU, made.Endpoint, made.Rx, made.Tx
			c.Security, c.Epoch = made.Security, made.Epoch
		}
		if !link.Held.IsZero() {
			c.HeldUntil = &link.Held
		}
		used := inUse[remote.Cluster]
		if hole, narrow := holes[remote.String()]; narrow {
			link.Reason = joined(link.Reason, mtuReason(hole))
			if hole.State == pathmtu.BlackHole {
				c.MTU = hole.PathMTU
			}
		}
		c.Active = used.LocalGateway == own.Name && used.RemoteGateway == remote.Gateway
		c.Reason = linkReason(c, link, used)
		if c.Migration = changing(changes, remote.String()); c.Migration != nil {
			c.Reason = joined(c.Reason, "changes to "+c.Migration.To+": "+c.Migration.Reason)
		}
		c.EndpointReason = r.config.Peers.EndpointReason(remote.String(), c.Endpoint)
		out = append(out, c)
	}
	return out
}

// linkReason returns why a link is in use or not.
func linkReason(c status.Connection, link health.Link, used status.Path) string {
	switch {
	case c.Active && link.Reason == "":
		return used.Reason
	case c.Active:
		return joined(used.Reason, link.Reason)
	case link.Reason != "":
		return link.Reason
	case used.Link != "":
		return used.Link + " is in use"
	}
	return ""
}

// Exports returns the state of each export on this node.
func Exports(in projection.Input) []status.Export {
	own, conflicts := projection.ClusterState(in), projection.Conflicts(in)
	services := make(map[string]*model.Service, len(in.Facts.Services))
	for i := range in.Facts.Services {
		services[in.Facts.Services[i].Namespace+"/"+in.Facts.Services[i].Name] = &in.Facts.Services[i]
	}
	out := make([]status.Export, 0, len(in.Fabric.Exports))
	for _, e := range in.Fabric.Exports {
		shown := status.Export{
			Namespace: e.Namespace, Name: e.Name, Type: e.Type, Policy: e.Balance.Policy, Allow: e.Allow, VIPs: humanize.Strings(e.VIPs),
			Dynamic: e.Dynamic,
		}
		if c, differ := conflicts[e.ID()]; differ {
			shown.Conflict = &status.Conflict{Reason: c.Reason, Message: c.Message}
		}
		for _, p := range e.Ports {
			shown.Ports = append(shown.Ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
		for _, c := range e.Clusters {
			live, received := in.ClusterStates[c.Name]
			if c.Name == in.Cluster {
				live, received = own, true
			}
			part := partOf(&e, c, live, received)
			if c.Name == in.Cluster && part.Ready == "yes" {
				part.Backends = backends(services[e.ID()])
			}
			shown.Clusters = append(shown.Clusters, part)
		}
		out = append(out, shown)
	}
	return out
}

// backends returns the endpoints of a service that receive connections: the ready ones, or the
// terminating ones if none is ready.
func backends(s *model.Service) []string {
	var out []string
	ready := slices.ContainsFunc(s.Endpoints, func(e model.Endpoint) bool { return e.Ready })
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if !e.Ready && (ready || !e.Terminating) {
			continue
		}
		name := cmp.Or(e.Pod, e.Hostname)
		if name == "" {
			name = strings.Join(humanize.Strings(e.Addrs), ",")
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out[:min(len(out), status.MaxBackends)]
}

func partOf(e *fabric.Export, c fabric.ExportCluster, live model.ClusterState, received bool) status.ExportCluster {
	part := status.ExportCluster{Name: c.Name, IPs: humanize.Strings(c.IPs), Ready: status.Unknown}
	if !received {
		return part
	}
	part.Ready = "no"
	i, found := slices.BinarySearchFunc(live.Exports, *e, func(l model.ExportState, e fabric.Export) int {
		return cmp.Or(cmp.Compare(l.Namespace, e.Namespace), cmp.Compare(l.Name, e.Name))
	})
	if !found {
		return part
	}
	if live.Exports[i].Ready {
		part.Ready = "yes"
	}
	for _, h := range live.Exports[i].Hosts {
		for _, ip := range h.IPs {
			part.Hosts = append(part.Hosts, h.Name+"="+ip.String())
		}
	}
	return part
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// mtuReason returns a text about a link that loses large packets.
func mtuReason(p pathmtu.LinkMTU) string {
	if p.State == pathmtu.Searching {
		return fmt.Sprintf("packets of %d bytes vanish, searching the path MTU", p.MTU)
	}
	return fmt.Sprintf("packets of %d bytes vanish, %d pass", p.MTU, p.PathMTU)
}

// changing returns the unfinished migration of a link; nil = none.
func changing(all map[string]migration.Progress, peer string) *status.Migration {
	p, ok := all[peer]
	if !ok {
		return nil
	}
	return &status.Migration{From: p.Active.String(), To: p.Target.String(), Since: p.Since, Reason: p.Reason}
}
