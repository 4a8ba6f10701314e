package nodeagent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/health"
	"hawser.dev/hawser/nodeagent/pathmtu"
	"hawser.dev/hawser/nodeagent/project"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// view is what the last round saw and did.
type view struct {
	report   converge.Report
	input    project.Input
	node     *node
	problems []project.Problem
	leaving  []health.Peer // gateways that linger
}

// status puts together what the agent tells of itself, as of now.
func (a *Agent) status() status.Status {
	s := a.brief()
	if v := a.shown.Load(); v.node != nil {
		s.Clusters, s.Exports = clustersOf(v.input.Fabric), exportsOf(v.input)
	}
	return s
}

// present is what metrics tell of the agent's state.
func (a *Agent) present() present {
	out := present{Status: a.brief()}
	if f := a.shown.Load().input.Fabric; f != nil {
		if own := f.Cluster(a.config.Cluster); own != nil {
			out.gateways = len(own.Gateways)
			out.reachable = slices.Sorted(maps.Keys(f.Graph().Ways(own.Name, nil)))
		}
	}
	return out
}

// brief is the status without what the fabric holds, which is long.
func (a *Agent) brief() status.Status {
	v := a.shown.Load()
	s := status.Status{
		Cluster: a.config.Cluster, Node: a.config.Node, Version: a.config.Version,
		Trust:  a.inputs.trust(),
		Inputs: slices.Concat(a.inputs.states(), a.peers.state(), a.published.state(), outletStates(a.outlets)),
	}
	if a.reporter != nil && a.reporter.Err() != nil {
		s.Inputs = append(s.Inputs, status.InputState{Name: "HawserNode", Error: a.reporter.Err().Error()})
	}
	if v.node == nil {
		return s
	}
	f := v.input.Fabric
	s.Digest, s.Clusterset = v.input.Digest, f.Name
	s.Mute = !a.named.Load() && !f.Decommission && len(a.dnsAddrs()) > 0
	s.Ready = v.report.Clean() && a.published.cleared(v.input) && !s.Mute
	s.LastPass = status.Pass{
		At: v.report.At, Took: v.report.Took.String(), Changed: len(v.report.Changed), Drift: a.metrics.driftSoFar(),
		Blocked: texts(v.report.Blocked), Failed: append(texts(v.report.Failed), texts(v.report.Fights)...),
	}
	for _, p := range v.problems {
		s.Problems = append(s.Problems, status.Problem{Path: p.Path, Code: p.Code, Text: p.Text})
	}
	s.Dropped, s.Conntrack = a.dropped(), a.conntrack()
	sight := a.sightOf(f, a.peers.snapshot().Leave(v.leaving))
	s.Paths, s.Moves = a.choice.state(sight)
	s.Drained = a.drain.is()
	if own := f.Cluster(a.config.Cluster); own != nil {
		if gateway := own.GatewayOn(a.config.Node); gateway != nil {
			s.Gateway, s.Epochs = gateway.Name, epochsOf(v.input)
			s.Connections = a.connections(f, v.node, gateway, sight, s.Paths)
		}
	}
	return s
}

// dropped gives what the node's rules dropped, of each reason.
func (a *Agent) dropped() []status.Dropped {
	counts, err := a.namespace.Dropped(context.Background())
	if err != nil {
		a.log.Debug("counters not read", "err", err)
	}
	var out []status.Dropped
	for _, d := range desired.Drops() {
		if n, exists := counts[d.Chain()]; exists {
			out = append(out, status.Dropped{Reason: d.Reason, Packets: n, Text: d.Doc})
		}
	}
	return out
}

// conntrack gives how full the connection table is.
func (a *Agent) conntrack() *status.Conntrack {
	entries, limit, err := a.namespace.Conntrack()
	if err != nil {
		a.log.Debug("connection table not read", "err", err)
		return nil
	}
	return &status.Conntrack{Entries: entries, Limit: limit}
}

// epochsOf gives the key epochs that this gateway can use.
func epochsOf(in project.Input) []int {
	var out []int
	for _, epoch := range in.Fabric.Epochs {
		if in.Keys != nil && in.Keys.Epoch(epoch) != nil {
			out = append(out, epoch)
		}
	}
	return out
}

func (a *Agent) sightOf(f *fabric.Fabric, s health.Snapshot) sight {
	return sight{fabric: f, cluster: a.config.Cluster, gateway: a.gatewayIn(f), snapshot: s}
}

// connections joins what the prober knows of each link with what its cables count
// and why the link is in use or not.
func (a *Agent) connections(f *fabric.Fabric, n *node, own *fabric.Gateway, v sight, paths []status.Path) []status.Connection {
	cables := a.cables(n)
	inUse := make(map[string]status.Path, len(paths))
	for _, p := range paths {
		inUse[p.Cluster] = p
	}
	holes := map[string]pathmtu.Path{}
	for _, p := range a.finder.Snapshot() {
		if p.State != pathmtu.OK && p.State != pathmtu.Unknown {
			holes[p.Peer] = p
		}
	}
	changes := a.cabling.Progress()
	var out []status.Connection
	for _, link := range v.snapshot.Links {
		remote := link.Target.Peer
		if link.Target.Device != "" {
			continue // a gateway of this cluster, over the VXLAN
		}
		c := status.Connection{
			Gateway: own.Name, RemoteCluster: remote.Cluster, RemoteGateway: remote.Gateway,
			Status: link.State, RTT: link.RTT, Loss: link.Loss, Since: link.Since, Rank: link.Rank.String(),
		}
		if made, there := cables[remote]; there {
			c.Driver, c.MTU, c.Endpoint, c.RxBytes, c.TxBytes = made.driver, made.mtu, made.endpoint, made.rx, made.tx
			c.Security, c.Epoch = made.security, made.epoch
		}
		if !link.Held.IsZero() {
			c.Held = &link.Held
		}
		used := inUse[remote.Cluster]
		if hole, narrow := holes[remote.String()]; narrow {
			link.Why = joined(link.Why, narrowness(hole))
			if hole.State == pathmtu.BlackHole {
				c.MTU = hole.Value
			}
		}
		c.Chosen = used.LocalGateway == own.Name && used.RemoteGateway == remote.Gateway
		c.Why = whyOf(c, link, used)
		if c.Change = changing(changes, remote.String()); c.Change != nil {
			c.Why = joined(c.Why, "changes to "+c.Change.To+": "+c.Change.Why)
		}
		c.EndpointWhy = a.endpoints.why(remote.String(), c.Endpoint)
		out = append(out, c)
	}
	return out
}

// whyOf says why a link is in use, or else why not.
func whyOf(c status.Connection, link health.Link, used status.Path) string {
	switch {
	case c.Chosen && link.Why == "":
		return used.Why
	case c.Chosen:
		return joined(used.Why, link.Why)
	case link.Why != "":
		return link.Why
	case used.Link != "":
		return used.Link + " is in use"
	}
	return ""
}

func clustersOf(f *fabric.Fabric) []status.Cluster {
	out := make([]status.Cluster, 0, len(f.Clusters))
	for _, c := range f.Clusters {
		shown := status.Cluster{
			Name: c.Name, Globalnet: c.Globalnet, EgressMode: c.EgressMode,
			PodCIDRs: text(c.PodCIDRs), ServiceCIDRs: text(c.ServiceCIDRs), GlobalCIDRs: text(c.GlobalCIDRs),
		}
		for _, g := range c.Gateways {
			shown.Gateways = append(shown.Gateways, g.Name)
		}
		out = append(out, shown)
	}
	return out
}

func exportsOf(in project.Input) []status.Export {
	own, clashes := project.LiveState(in), project.Clashes(in)
	services := make(map[string]*project.Service, len(in.Facts.Services))
	for i := range in.Facts.Services {
		services[in.Facts.Services[i].Namespace+"/"+in.Facts.Services[i].Name] = &in.Facts.Services[i]
	}
	out := make([]status.Export, 0, len(in.Fabric.Exports))
	for _, e := range in.Fabric.Exports {
		shown := status.Export{
			Namespace: e.Namespace, Name: e.Name, Type: e.Type, Policy: e.Balance.Policy, Allow: e.Allow, VIPs: text(e.VIPs),
			Dynamic: e.Dynamic,
		}
		if c, differ := clashes[e.ID()]; differ {
			shown.Conflict = &status.Conflict{Reason: c.Reason, Message: c.Message}
		}
		for _, p := range e.Ports {
			shown.Ports = append(shown.Ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
		for _, c := range e.Clusters {
			live, heard := in.Live[c.Name]
			if c.Name == in.Cluster {
				live, heard = own, true
			}
			part := partOf(&e, c, live, heard)
			if c.Name == in.Cluster && part.Ready == "yes" {
				part.Backends = backends(services[e.ID()])
			}
			shown.Clusters = append(shown.Clusters, part)
		}
		out = append(out, shown)
	}
	return out
}

// backends names the ready endpoints of a service.
func backends(s *project.Service) []string {
	var out []string
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if !e.Ready {
			continue
		}
		name := cmp.Or(e.Pod, e.Hostname)
		if name == "" {
			name = strings.Join(text(e.Addrs), ",")
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out[:min(len(out), status.MaxBackends)]
}

func partOf(e *fabric.Export, c fabric.ExportCluster, live project.Live, heard bool) status.ExportCluster {
	part := status.ExportCluster{Name: c.Name, IPs: text(c.IPs), Ready: status.Unknown}
	if !heard {
		return part
	}
	part.Ready = "no"
	i, found := slices.BinarySearchFunc(live.Exports, *e, func(l project.LiveExport, e fabric.Export) int {
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

func text[T netip.Addr | netip.Prefix](list []T) []string {
	out := make([]string, len(list))
	for i, item := range list {
		out[i] = fmt.Sprint(item)
	}
	return out
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// narrowness tells of packets that vanish for their size.
func narrowness(p pathmtu.Path) string {
	if p.State == pathmtu.Searching {
		return fmt.Sprintf("packets of %d bytes vanish, looking for what passes", p.MTU)
	}
	return fmt.Sprintf("packets of %d bytes vanish, %d pass", p.MTU, p.Value)
}
