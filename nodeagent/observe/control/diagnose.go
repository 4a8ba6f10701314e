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
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// How long packets may be followed.
const (
	leastDiagnosis = 2 * time.Second
	mostDiagnosis  = 5 * time.Minute
)

var errDiagnosing = errors.New("packets are being followed already: ask again when that has ended")

// sought is what a diagnosis looks at.
type sought struct {
	long      time.Duration
	addresses []netip.Prefix // packets from or to one of them
	exports   []string       // namespace/name: packets from or to their addresses; without either: all packets
}

// diagnose follows packets of the clusterset for a time.
func (c *Control) diagnose(ctx context.Context, ask sought) (status.Diagnosis, error) {
	if !c.diagnosing.TryLock() {
		return status.Diagnosis{}, errDiagnosing
	}
	defer c.diagnosing.Unlock()
	v := c.config.Outcome()
	if v.Node == nil {
		return status.Diagnosis{}, errors.New("there is no fabric yet that says what belongs to the clusterset")
	}
	filter := packetsOf(v.Input.Fabric, c.config.Cluster)
	// Where agents of the same cluster ask each other all the time: on a gateway of many nodes
	// nothing else would be among what is followed.
	for _, n := range v.Input.Facts.Nodes {
		if n.Name != v.Input.Node {
			continue
		}
		for _, addr := range n.Addrs {
			filter.Quiet = append(filter.Quiet, nftrace.Socket{Protocol: unix.IPPROTO_UDP, Addr: netip.AddrPortFrom(addr, desired.ProbePort)},
				nftrace.Socket{Protocol: unix.IPPROTO_TCP, Addr: netip.AddrPortFrom(addr, desired.FeedPort)})
		}
	}
	only, err := narrowed(v.Input, ask)
	if err != nil {
		return status.Diagnosis{}, err
	}
	filter.Include = only
	before, errBefore := nftrace.ReversePathDrops()
	steps, lasted, err := nftrace.Capture(ctx, filter, ask.long)
	if err != nil {
		return status.Diagnosis{}, err
	}
	d := nftrace.Judge(steps, lasted, blocksOf(v.Input.Fabric, c.config.Cluster))
	d.Only = only
	if rules := v.Input.Local.ForeignRules; len(rules) > 0 {
		leak := desired.Drop{Reason: desired.DropLeak}.Chain()
		for i := range d.Findings {
			if f := &d.Findings[i]; f.Kind == status.FindingOwn && strings.Contains(f.Place, leak) {
				f.Do = desired.ForeignRuleText(rules)
			}
		}
	}
	if after, err := nftrace.ReversePathDrops(); err == nil && errBefore == nil {
		d.ReversePathDrops = after - before
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
		// Every node reports unprotected nodes. The answers of gateways are enough.
		if slices.Contains([]string{projection.PodsOutside, projection.ForeignRule, projection.ConnectedNetwork}, p.Code) ||
			p.Code == projection.Unprotected && d.Gateway != "" {
			d.Problems = append(d.Problems, p.Text)
		}
	}
	for _, link := range c.config.Links().Links {
		if link.Target.Device == "" { // of another cluster
			d.Remotes = append(d.Remotes, link.Target.Peer.String())
		}
	}
	return d, nil
}

// serveDiagnosis answers GET /diagnose?for=10s&address=10.7.1.9&export=shop/web.
func (c *Control) serveDiagnosis(w http.ResponseWriter, r *http.Request) {
	ask, err := parseDiagnoseRequest(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d, err := c.diagnose(r.Context(), ask)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	c.send(w, d)
}

func parseDiagnoseRequest(query url.Values) (sought, error) {
	long, err := time.ParseDuration(query.Get("for"))
	if err != nil || long < leastDiagnosis || long > mostDiagnosis {
		return sought{}, fmt.Errorf("for: a time from %s to %s", leastDiagnosis, mostDiagnosis)
	}
	ask := sought{long: long, exports: query["export"]}
	for _, text := range query["address"] {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			var addr netip.Addr
			addr, err = netip.ParseAddr(text)
			p = cidr.Single(addr)
		}
		if err != nil {
			return sought{}, fmt.Errorf("address %q: an address (10.7.1.9) or a prefix (10.7.0.0/16)", text)
		}
		ask.addresses = append(ask.addresses, p.Masked())
	}
	return ask, nil
}

// narrowed gives the addresses that are asked for; none = all.
func narrowed(in projection.Input, ask sought) ([]netip.Prefix, error) {
	out := slices.Clone(ask.addresses)
	for _, id := range ask.exports {
		addrs := addressesOf(in, id)
		if len(addrs) == 0 {
			return nil, fmt.Errorf("there is no export %s with an address here: namespace/name, as hawser show exports has them", id)
		}
		for _, addr := range addrs {
			out = append(out, cidr.Single(addr))
		}
	}
	return cidr.Outermost(out), nil
}

// addressesOf gives all addresses that packets of an export have on their way: its
// clusterset IPs, those in each cluster, and those of the endpoints here.
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
	for _, live := range in.Live {
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

// packetsOf gives what belongs to the clusterset on nodes of a cluster: clusterset IPs,
// global addresses, what flat clusters show of themselves, and DNS. Probes and feeds
// between gateways do not.
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

// blocksOf returns the prefixes by which nodes of a cluster know pods of the other clusters.
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
