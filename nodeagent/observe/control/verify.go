package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/nodeagent/observe/report"
	"hawser.dev/hawser/nodeagent/observe/verify"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// Limits of the duration of a connection attempt.
const (
	minAttempt = 100 * time.Millisecond
	maxAttempt = 30 * time.Second
)

// serveVerification serves GET /verify?timeout=3s&export=shop/web&protocol=tcp.
func (c *Control) serveVerification(w http.ResponseWriter, r *http.Request) {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || timeout < minAttempt || timeout > maxAttempt {
		http.Error(w, fmt.Sprintf("timeout: want a duration from %s to %s", minAttempt, maxAttempt), http.StatusBadRequest)
		return
	}
	v, err := c.verify(r.Context(), timeout, r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	c.send(w, v)
}

func (c *Control) verify(ctx context.Context, timeout time.Duration, query url.Values) (status.Verification, error) {
	v := c.config.Outcome()
	if v.Node == nil {
		return status.Verification{}, errors.New("no fabric yet: the exports are unknown; see hawser-agent status")
	}
	servers := c.config.Names()
	if len(servers) == 0 {
		return status.Verification{}, errors.New("the agent has no DNS address on this node")
	}
	checks := checksOf(v.Input)
	if only := query["export"]; len(only) > 0 {
		for _, id := range only {
			if !slices.ContainsFunc(checks, func(c status.Check) bool { return c.Export == id }) {
				return status.Verification{}, fmt.Errorf("export %q not found here (want namespace/name, see hawser show exports)", id)
			}
		}
		checks = slices.DeleteFunc(checks, func(c status.Check) bool { return !slices.Contains(only, c.Export) })
	}
	if protocol := strings.ToUpper(query.Get("protocol")); protocol != "" {
		for i := range checks {
			checks[i] = ofProtocol(checks[i], protocol)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, verify.MaxDuration)
	defer cancel()
	prefixes := answerPrefixes(v.Input)
	results := verify.Verifier{Server: servers[0], Timeout: timeout, Prefixes: prefixes}.All(ctx, checks)
	return status.Verification{Cluster: c.config.Cluster, Node: c.config.Node, Results: results, Prefixes: prefixes}, nil
}

// checksOf returns a check for the name of each exported service, and for the name of each
// cluster's part of it. It skips names that this cluster may not use.
func checksOf(in projection.Input) []status.Check {
	var out []status.Check
	shown := report.Exports(in)
	for i := range in.Fabric.Exports {
		e := &in.Fabric.Exports[i]
		base := status.Check{
			Export: e.ID(), Ports: checkPorts(e.Ports), Headless: e.Type == fabric.Headless,
			Name: e.Name + "." + e.Namespace + ".svc." + in.Fabric.Domain,
		}
		may := e.Allow == nil || slices.Contains(e.Allow, in.Cluster)
		var parts []status.Check
		ready := false
		for k, c := range e.Clusters {
			part := base
			part.Cluster, part.Name = c.Name, c.Name+"."+base.Name
			if c.Ports != nil {
				part.Ports = checkPorts(c.Ports)
			}
			if shown[i].Clusters[k].Ready == "no" {
				part.NotReady = "no endpoint is ready in cluster " + c.Name
			}
			ready = ready || part.NotReady == ""
			parts = append(parts, skipUnless(may || c.Name == in.Cluster, part))
		}
		if !ready {
			base.NotReady = "no endpoint is ready in any cluster"
		}
		out = append(out, skipUnless(may, base))
		if in.Fabric.DNS.ClusterNames {
			out = append(out, parts...)
		}
	}
	return out
}

// skipUnless returns the check unchanged if may is true. Otherwise it returns a skipped check,
// because this cluster may not use the export.
func skipUnless(may bool, c status.Check) status.Check {
	if !may {
		c.NotReady, c.Skipped = "", "the export does not allow this cluster"
	}
	return c
}

// ofProtocol returns the check with only the ports of one protocol. Without such a port, the check
// is skipped.
func ofProtocol(c status.Check, protocol string) status.Check {
	c.Ports = slices.DeleteFunc(slices.Clone(c.Ports), func(p status.CheckPort) bool { return p.Protocol != protocol })
	if len(c.Ports) == 0 && c.Skipped == "" {
		c.NotReady, c.Skipped = "", "it has no "+protocol+" port"
	}
	return c
}

func checkPorts(all []fabric.Port) []status.CheckPort {
	var out []status.CheckPort
	for _, p := range all {
		out = append(out, status.CheckPort{Name: p.Name, Protocol: p.Protocol, Number: uint16(p.Port)})
	}
	return out
}

// answerPrefixes returns prefixes that contain every address to which a name of the clusterset may
// resolve in this cluster.
func answerPrefixes(in projection.Input) []netip.Prefix {
	own := in.Fabric.Cluster(in.Cluster)
	if own == nil {
		return nil
	}
	out := slices.Concat(in.Fabric.ServicePools, in.Fabric.GlobalPools, own.PodCIDRs, own.ServiceCIDRs)
	for i := range in.Fabric.Clusters {
		if c := &in.Fabric.Clusters[i]; c.Name != own.Name {
			out = append(out, c.SeenFrom(own)...)
		}
	}
	for _, n := range in.Facts.Nodes { // pods of this cluster on the host network
		for _, a := range n.Addrs {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits()) })
	return slices.Compact(out)
}
