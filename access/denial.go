package access

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fabric/reach"
)

// denial is the reason why the model denies access: the deciding topology path, and an explanation.
type denial struct {
	path   string
	reason string
	// address reports whether an export has no address that the source could use.
	address bool
	// line is a further relevant line of the topology. Its path is empty if absent.
	line Line
}

// deniedCluster returns the denial if a cluster is not in the topology.
func (s *Set) deniedCluster(names ...string) (denial, bool) {
	for _, name := range names {
		if s.model.Cluster(name) == nil {
			return denial{path: clusterPath(name), reason: fmt.Sprintf("there is no cluster %s in the topology", name)}, true
		}
	}
	return denial{}, false
}

// deniedPath returns the denial if two clusters have no path to each other.
func (s *Set) deniedPath(from, cluster string) (denial, bool) {
	if d, denied := s.deniedCluster(cluster, from); denied {
		return d, true
	}
	if s.model.Connected(from, cluster) {
		return denial{}, false
	}
	d := denial{path: "connectivity", reason: fmt.Sprintf("%s and %s have no path to each other", from, cluster),
		line: Line{Path: "connectivity", Text: "links: " + s.model.Fabric().Shape.Mode}}
	for _, name := range []string{from, cluster} {
		if len(s.model.Cluster(name).Gateways) == 0 {
			d.path = clusterPath(name) + ".gateways"
		}
	}
	return d, true
}

// deniedExport returns why a cluster cannot reach another cluster's part of an export.
func (s *Set) deniedExport(e *fabric.Export, from, cluster string, port fabric.Port) denial {
	path := exportPath(e.ID())
	if e.ClusterPart(cluster) == nil {
		return denial{path: path + ".clusters[" + cluster + "]", reason: fmt.Sprintf("%s is not exported by %s", e.ID(), cluster)}
	}
	if d, denied := s.deniedPath(from, cluster); denied {
		return d
	}
	switch {
	case !e.Allows(from):
		return denial{path: path + ".allow", reason: fmt.Sprintf("the allow list of %s does not have %s", e.ID(), from)}
	case !hasPort(e, port):
		return denial{path: path + ".ports", reason: fmt.Sprintf("%s has no port %s: it has %s", e.ID(), formatPort(port), formatPorts(e))}
	case len(s.model.Export(e, cluster).Addrs()) == 0:
		return denial{path: path, address: true, reason: fmt.Sprintf("pods of %s have no address that others know: set hostnames of the export", cluster)}
	}
	return denial{path: clusterPath(from) + ".podCIDRs", address: true,
		reason: fmt.Sprintf("%s and %s have no address family in common", from, cluster)}
}

// deniedDynamic returns why a cluster cannot reach the dynamic exports of another cluster.
func (s *Set) deniedDynamic(from, cluster string) denial {
	if d, denied := s.deniedPath(from, cluster); denied {
		return d
	}
	return denial{path: "dynamicExports", reason: fmt.Sprintf("%s has no addresses for exports of its own that %s reaches", cluster, from)}
}

// deniedAddress returns why a cluster cannot reach an address that belongs to another cluster.
func (s *Set) deniedAddress(from, cluster string, a netip.Addr) denial {
	if d, denied := s.deniedPath(from, cluster); denied {
		return d
	}
	c, path := s.model.Cluster(cluster), clusterPath(cluster)
	switch {
	case slices.ContainsFunc(c.GlobalCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }):
		return denial{path: path, reason: fmt.Sprintf("no export has %s: pods behind it get answers only", a),
			line: Line{Path: path, Text: "global block of " + cluster}}
	case c.IsGlobalnet(fabric.Family(a)):
		d := denial{path: path, reason: fmt.Sprintf("%s is hidden behind the global block of %s: ask for an export", a, cluster),
			line: Line{Path: path, Text: cluster + " hides its own addresses behind its global block"}}
		if slices.ContainsFunc(slices.Concat(c.PodCIDRs, c.ServiceCIDRs), func(p netip.Prefix) bool { return p.Contains(a) }) {
			d.path += ".globalnet"
		}
		return d
	}
	return denial{path: path, reason: fmt.Sprintf("%s is no address that %s reaches in %s", a, from, cluster)}
}

func clusterPath(name string) string { return "clusters[" + name + "]" }

func exportPath(id string) string { return "exports[" + id + "]" }

func hasPort(e *fabric.Export, port fabric.Port) bool {
	return e != nil && slices.ContainsFunc(e.Ports, func(p fabric.Port) bool { return reach.PortID(p) == reach.PortID(port) })
}

func formatPort(p fabric.Port) string {
	return strings.TrimSuffix(fmt.Sprintf("%d/%s", p.Port, p.Protocol), "/TCP")
}

func formatPorts(e *fabric.Export) string {
	texts := make([]string, len(e.Ports))
	for i, p := range e.Ports {
		texts[i] = formatPort(p)
		if p.Name != "" {
			texts[i] += " (" + p.Name + ")"
		}
	}
	return strings.Join(texts, ", ")
}
