package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/internal/cidr"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/observe/nftrace"
	"hawser.dev/hawser/nodeagent/peer/wire"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// Limits of the duration of a trace.
const (
	minDiagnosis = 2 * time.Second
	maxDiagnosis = 5 * time.Minute
)

var errDiagnosing = errors.New("another trace is running on this node: try again when it has ended")

// traceRequest selects the packets of a trace.
type traceRequest struct {
	duration  time.Duration
	addresses []netip.Prefix // only packets from or to one of these
	exports   []string       // namespace/name: only packets from or to their addresses; no addresses or exports = all packets
}

// diagnose traces packets of the clusterset for the requested duration and returns the result.
func (c *Control) diagnose(ctx context.Context, request traceRequest) (status.Diagnosis, error) {
	if !c.diagnosing.TryLock() {
		return status.Diagnosis{}, errDiagnosing
	}
	defer c.diagnosing.Unlock()
	v := c.config.Outcome()
	if v.Node == nil {
		return status.Diagnosis{}, errors.New("no fabric yet: the prefixes of the clusterset are unknown; see hawser-agent status")
	}
	filter := packetsOf(v.Input.Fabric, c.config.Cluster)
	filter.Message, filter.MessagePort = wire.Magic, desired.ProbePort
	// Exclude the constant traffic between agents of the cluster. On a gateway of many nodes,
	// it would use up the rate limit of the trace.
	for _, n := range v.Input.Facts.Nodes {
		if n.Name != v.Input.Node {
			continue
		}
		for _, addr := range n.Addrs {
			filter.Quiet = append(filter.Quiet, nftrace.Socket{Protocol: unix.IPPROTO_TCP, Addr: netip.AddrPortFrom(addr, desired.FeedPort)})
		}
	}
	only, err := narrowed(v.Input, request)
	if err != nil {
		return status.Diagnosis{}, err
	}
	filter.Include = only
	before, errBefore := nftrace.ReversePathDrops()
	missing := c.config.MissingTests()
	steps, lasted, err := nftrace.Capture(ctx, filter, request.duration)
	if err != nil {
		return status.Diagnosis{}, err
	}
	d := nftrace.Diagnose(steps, lasted, blocksOf(v.Input.Fabric, c.config.Cluster))
	d.Prefixes = only
	if rules := v.Input.Local.ForeignRules; len(rules) > 0 {
		leak := desired.Drop{Reason: desired.DropLeak}.Chain()
		for i := range d.Findings {
			if f := &d.Findings[i]; f.Kind == status.FindingOwn && strings.Contains(f.Location, leak) {
				f.Next = desired.ForeignRuleText(rules)
			}
		}
	}
	if after, err := nftrace.ReversePathDrops(); err == nil && errBefore == nil {
		// If a network does not allow direct packets, rp_filter may drop all test packets
		// of this agent.
		d.ReversePathDrops = max(0, after-before-(c.config.MissingTests()-missing))
	}
	d.Cluster, d.Node, d.Nodes = c.config.Cluster, c.config.Node, len(v.Input.Facts.Nodes)
	if own := v.Input.Fabric.Cluster(c.config.Cluster); own != nil {
		for _, g := range own.Gateways {
			d.SiblingGateways = append(d.SiblingGateways, g.Name)
		}
		if g := own.GatewayOn(c.config.Node); g != nil {
			d.Gateway = g.Name
		}
	}
	for _, p := range v.Problems {
		// Every node reports unprotected nodes; the reports of gateways are enough.
		if slices.Contains([]string{status.PodsOutsideCIDRs, status.ForeignRule, status.ConnectedNetwork}, p.Code) ||
			p.Code == status.NodeUnprotected && d.Gateway != "" {
			d.Problems = append(d.Problems, p.Text)
		}
	}
	for _, link := range c.config.Links().Links {
		if link.Target.Device == "" { // a gateway of another cluster
			d.Remotes = append(d.Remotes, link.Target.Peer.String())
		}
	}
	return d, nil
}

// serveDiagnosis serves GET /diagnose?for=10s&address=10.7.1.9&export=shop/web.
func (c *Control) serveDiagnosis(w http.ResponseWriter, r *http.Request) {
	request, err := parseDiagnoseRequest(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d, err := c.diagnose(r.Context(), request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	c.send(w, d)
}

func parseDiagnoseRequest(query url.Values) (traceRequest, error) {
	duration, err := time.ParseDuration(query.Get("for"))
	if err != nil || duration < minDiagnosis || duration > maxDiagnosis {
		return traceRequest{}, fmt.Errorf("for: want a duration from %s to %s", minDiagnosis, maxDiagnosis)
	}
	request := traceRequest{duration: duration, exports: query["export"]}
	for _, text := range query["address"] {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			var addr netip.Addr
			addr, err = netip.ParseAddr(text)
			p = cidr.Single(addr)
		}
		if err != nil {
			return traceRequest{}, fmt.Errorf("address %q: want an address (10.7.1.9) or a prefix (10.7.0.0/16)", text)
		}
		request.addresses = append(request.addresses, p.Masked())
	}
	return request, nil
}

// narrowed returns the prefixes to which a request limits the trace; empty = all packets.
func narrowed(in projection.Input, request traceRequest) ([]netip.Prefix, error) {
	out := slices.Clone(request.addresses)
	for _, id := range request.exports {
		addrs := addressesOf(in, id)
		if len(addrs) == 0 {
			return nil, fmt.Errorf("export %q not found or without an address here (want namespace/name, see hawser show exports)", id)
		}
		for _, addr := range addrs {
			out = append(out, cidr.Single(addr))
		}
	}
	return cidr.Outermost(out), nil
}

// addressesOf returns all addresses that packets of an export can have: its clusterset IPs, its
// addresses in each cluster, and the addresses of its endpoints in this cluster.
func addressesOf(in projection.Input, id string) []netip.Addr {
	var out []netip.Addr
	for i := range in.Fabric.Exports {
		e := &in.Fabric.Exports[i]
		if e.ID() != id {
			continue
		}
		out = append(out, e.VIPs...)
		for _, c := range e.Clusters {
			out = append(out, c.IPs...)
			for _, h := range c.Hosts {
				out = append(out, h.IPs...)
			}
		}
	}
	for _, live := range in.ClusterStates {
		for _, e := range live.Exports {
			if e.Namespace+"/"+e.Name == id {
				for _, h := range e.Hosts {
					out = append(out, h.IPs...)
				}
			}
		}
	}
	for _, s := range in.Facts.Services {
		if s.Namespace+"/"+s.Name == id {
			for _, e := range s.Endpoints {
				out = append(out, e.Addrs...)
			}
		}
	}
	return out
}

// packetsOf returns the filter for packets of the clusterset on nodes of a cluster: clusterset IPs,
// global addresses, addresses of flat clusters, and DNS. It excludes probes and feeds between
// gateways.
func packetsOf(f *fabric.Fabric, own string) nftrace.Filter {
	all := slices.Concat(f.ServicePools, f.GlobalPools)
	if f.DynamicExports != nil {
		all = append(all, f.DynamicExports.VIPs...)
	}
	for i := range f.Clusters {
		c := &f.Clusters[i]
		all = append(all, c.GlobalCIDRs...)
		for _, p := range slices.Concat(c.PodCIDRs, c.ServiceCIDRs) {
			if c.Name != own && !c.IsGlobalnet(fabric.Family(p.Addr())) {
				all = append(all, p)
			}
		}
	}
	for _, addr := range f.DNS.Addresses() {
		all = append(all, cidr.Single(addr))
	}
	return nftrace.Filter{Prefixes: cidr.Outermost(all), Exclude: slices.Clone(f.TunnelPools)}
}

// blocksOf returns the prefixes by which the cluster own knows pods of other clusters.
func blocksOf(f *fabric.Fabric, own string) []netip.Prefix {
	var out []netip.Prefix
	for i := range f.Clusters {
		c := &f.Clusters[i]
		if c.Name == own {
			continue
		}
		out = append(out, c.GlobalCIDRs...)
		for _, p := range c.PodCIDRs {
			if !c.IsGlobalnet(fabric.Family(p.Addr())) {
				out = append(out, p)
			}
		}
	}
	return out
}
