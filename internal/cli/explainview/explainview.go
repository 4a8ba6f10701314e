// Package explainview implements hawser explain and its view on the page. It parses source and
// target, and draws the answer.
package explainview

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/access"
	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/internal/cli/agentquery"
	"hawser.dev/hawser/internal/cli/topofile"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/schema/fabric"
)

// Flags are the flags of hawser explain.
type Flags struct {
	agentquery.Targets // the agents to query; File is the topology and selects no agents
	Live               bool
}

// Explain explains how the source in the arguments reaches their target.
func Explain(ctx context.Context, env *cli.Env, c topofile.Compiled, args []string, f Flags) (*access.Answer, error) {
	ends := strings.Fields(strings.ReplaceAll(strings.Join(args, " "), "->", " "))
	if len(ends) != 2 || ends[1] == "-" {
		return nil, errors.New("say from where to what: hawser explain g1/shop/client web.shop:80 (an arrow between them needs quotes in a shell)")
	}
	from, err := explainFrom(c.Fabric, ends[0])
	if err != nil {
		return nil, err
	}
	to, err := explainTo(c.Fabric, ends[1])
	if err != nil {
		return nil, err
	}
	set := access.New(c.Fabric, access.Options{PreferredLink: preferredLinks(c.Fabric), Position: c.PositionOf})
	answer, err := set.Explain(from, to)
	if err != nil || !f.Live || !answer.Allowed {
		return answer, err
	}
	reports, err := agentquery.QueryPaths(ctx, env, f.Targets, c.Fabric, answer)
	if err != nil {
		return nil, err
	}
	return set.WithReports(reports).Explain(from, to)
}

// explainFrom parses the source.
func explainFrom(f *fabric.Fabric, text string) (access.Source, error) {
	parts := strings.Split(text, "/")
	if a, err := netip.ParseAddr(text); err == nil {
		var owners []string
		for _, c := range f.Clusters {
			if slices.ContainsFunc(c.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) {
				owners = append(owners, c.Name)
			}
		}
		switch len(owners) {
		case 0:
			return access.Source{}, fmt.Errorf("%s is in podCIDRs of no cluster: write whose address it is, as in g1/%s", a, a)
		case 1:
			return access.Source{Cluster: owners[0], Addr: a}, nil
		}
		return access.Source{}, fmt.Errorf("%s is in podCIDRs of %s: write whose address it is, as in %s/%s", a,
			strings.Join(owners, ", "), owners[0], a)
	}
	from := access.Source{Cluster: parts[0]}
	switch {
	case len(parts) == 1:
	case len(parts) == 2 && parts[1] == "node":
		from.Node = true
	case len(parts) == 2:
		a, err := netip.ParseAddr(parts[1])
		if err != nil {
			return from, fmt.Errorf("%s: a pod is written as cluster/namespace/pod, or cluster/address", text)
		}
		from.Addr = a
	case len(parts) == 3:
		from.Namespace, from.Pod = parts[1], parts[2]
	default:
		return from, fmt.Errorf("%s: a pod is written as cluster/namespace/pod, or cluster/address", text)
	}
	if f.Cluster(from.Cluster) == nil {
		return from, fmt.Errorf("%s: there is no cluster %s in the topology", text, from.Cluster)
	}
	return from, nil
}

// explainTo parses the target.
func explainTo(f *fabric.Fabric, text string) (access.Target, error) {
	var to access.Target
	rest := text
	for _, protocol := range []string{"tcp", "udp"} {
		if target, ok := strings.CutSuffix(rest, "/"+protocol); ok {
			rest, to.Protocol = target, protocol
		}
	}
	if cluster, after, ok := strings.Cut(rest, "/"); ok && isAddress(after) {
		to.Cluster, rest = cluster, after
		if f.Cluster(cluster) == nil {
			return to, fmt.Errorf("%s: there is no cluster %s in the topology", text, cluster)
		}
	}
	if isAddress(rest) {
		at, err := netip.ParseAddrPort(rest)
		if err != nil {
			return to, fmt.Errorf("%s: give a port, as in 243.0.0.1:80 or [fd00::1]:80", text)
		}
		to.Addr, to.Port = at.Addr(), fmt.Sprint(at.Port())
		if to.Protocol == "" {
			to.Protocol = "tcp"
		}
		return to, nil
	}
	rest, to.Port, _ = strings.Cut(rest, ":")
	if to.Protocol == "" && to.Port != "" {
		to.Protocol = "tcp"
	}
	if strings.Contains(rest, "/") {
		to.Export = rest
		return to, nil
	}
	rest = strings.TrimSuffix(rest, ".")
	for _, domain := range append([]string{f.Domain}, f.ExtraDomains...) {
		rest = strings.TrimSuffix(rest, "."+domain)
	}
	labels := strings.Split(strings.TrimSuffix(rest, ".svc"), ".")
	switch n := len(labels); {
	case n < 2 || n > 4:
		return to, fmt.Errorf("%s: a service is written as name.namespace, cluster.name.namespace or namespace/name", text)
	case n > 2:
		to.Cluster = labels[n-3]
		if f.Cluster(to.Cluster) == nil {
			return to, fmt.Errorf("%s: there is no cluster %s in the topology (names end with .svc.%s)", text,
				to.Cluster, f.Domain)
		}
		fallthrough
	default:
		to.Export = labels[n-1] + "/" + labels[n-2]
	}
	return to, nil
}

// isAddress reports whether text is an address, with or without a port.
func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	_, err2 := netip.ParseAddrPort(text)
	return err == nil || err2 == nil
}

// AddrsText formats addresses as ranges.
func AddrsText(list []netip.Addr) string { return strings.Join(fabric.Ranges(list), ", ") }

// preferredLinks returns the gateways of the preferred link of each pair of clusters.
func preferredLinks(f *fabric.Fabric) access.PreferredLink {
	t := health.NewPreferences(f, nil)
	return func(a, b string) (string, string, bool) {
		p, ok := t.First(a, b)
		return p.Local, p.Remote, ok
	}
}
