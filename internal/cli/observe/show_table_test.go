package observe

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"hawser.dev/hawser/nodeagent/status"
)

// realisticStatus returns the report of a gateway in a clusterset of 20 clusters with long names,
// two IP families, headless exports and conflicts.
func realisticStatus(cluster, node string) status.Status {
	at := time.Date(2026, 11, 27, 18, 30, 0, 0, time.UTC)
	s := status.Status{Cluster: cluster, Node: node, Gateway: node, Version: "v0.2.0", Ready: true,
		Digest: "b06512f3a9c4", LastRound: status.Round{At: at, Took: "25ms"}}
	var names []string
	for _, name := range []string{"frankfurt-1", "singapore-1", "sydney-2", "montreal-1"} {
		for _, kind := range []string{"", "-dev", "-ci", "-edge", "-lab"} {
			names = append(names, strings.TrimSuffix(name, "-1")+kind)
		}
	}
	for _, name := range names[:4] {
		link := cluster + "/" + node + "-" + name + "/gateway-b"
		s.Connections = append(s.Connections, status.Connection{Gateway: node, RemoteCluster: name, RemoteGateway: "gateway-b",
			Endpoint: "203.0.113.112:51820", Driver: "wireguard (kernel)", Status: "connecting", Active: true, Rank: "good",
			Reason: "best of 6", RTT: &status.RTT{Avg: 123_450}, Loss: 0.015, MTU: 1420, Since: at, Epoch: 2})
		s.Paths = append(s.Paths, status.Path{Cluster: name, Link: link, Rank: "unsteady", Reason: "follows frankfurt", Since: at,
			LastMove: &status.Move{At: at, From: link, To: link, Cause: "frankfurt/gateway-a drains"}})
	}
	for _, name := range names {
		s.Clusters = append(s.Clusters, status.Cluster{Name: name, PodCIDRs: []string{"10.128.0.0/14", "fd00:10:128::/48"},
			ServiceCIDRs: []string{"172.30.0.0/16", "fd00:172:30::/112"}, GlobalCIDRs: []string{"242.116.0.0/15", "fd00:242:116::/96"},
			Globalnet: true, EgressMode: "mapped", Gateways: []string{"gateway-a", "gateway-b", "gateway-c"}})
	}
	for _, name := range []string{"web-frontend", "database"} {
		e := status.Export{Namespace: "team-shop", Name: name, Type: "ClusterSetIP", VIPs: []string{"243.115.200.101", "fd00:243::c865"},
			Ports: []string{"http:8080/TCP", "metrics:9090/TCP", "dns:53/UDP"}, Policy: "local-first", Allow: names,
			Conflict: &status.Conflict{Reason: "SessionAffinityConfigConflict"}}
		for _, c := range names {
			e.Clusters = append(e.Clusters, status.ExportCluster{Name: c, Ready: "yes", IPs: []string{"242.116.200.101"}})
		}
		s.Exports = append(s.Exports, e)
	}
	return s
}

// TestTablesFit checks that without -o wide no line of a table has more than 120 characters.
func TestTablesFit(t *testing.T) {
	t.Parallel()
	agents := []status.Status{realisticStatus("frankfurt", "gateway-a"), realisticStatus("singapore", "gateway-a")}
	// Nodes that use different links make more rows.
	other := realisticStatus("singapore", "worker-1.example.org")
	other.Gateway, other.Connections = "", nil
	for i := range other.Paths {
		other.Paths[i].Link = "singapore/gateway-b-montreal/gateway-c"
	}
	agents = append(agents, other)
	for _, what := range []string{showConnections, showPaths, showExports, showClusters, showAll} {
		text := tables(what, agents, false)
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, " \n")); n > 120 {
				t.Errorf("show %s: %d columns: %s", what, n, line)
			}
		}
		if wide := tables(what, agents, true); len(wide) <= len(text) {
			t.Errorf("show %s -o wide has no more than the table:\n%s", what, wide)
		}
	}
}

// TestEqualTablesOnce checks that equal tables of several clusters are printed once, with the
// clusters in the title.
func TestEqualTablesOnce(t *testing.T) {
	t.Parallel()
	a, b, c := realisticStatus("a", "gw"), realisticStatus("b", "gw"), realisticStatus("c", "gw")
	if text := tables(showClusters, []status.Status{a, b, c}, false); !strings.HasPrefix(text, "All 3 clusters agree\n") || strings.Count(text, "NAME") != 1 {
		t.Errorf("equal tables:\n%s", text)
	}
	c.Clusters = c.Clusters[1:]
	text := tables(showClusters, []status.Status{a, b, c}, false)
	if !strings.HasPrefix(text, "Clusters a, b agree\n") || !strings.Contains(text, "\n\nCluster \"c\"\n") || strings.Count(text, "NAME") != 2 {
		t.Errorf("two of three equal:\n%s", text)
	}
}
