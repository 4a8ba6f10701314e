package observe

import (
	"fmt"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/nodeagent/status"
)

// Formats of -o where tables are printed.
const (
	outWide = "wide" // more columns
	outName = "name" // names alone, one a line
)

func tableOutputs() []string { return []string{"text", outWide, outName, "json", "yaml"} }

// linesOnce gives texts in order, each once.
func linesOnce(texts []string) string {
	slices.Sort(texts)
	var out strings.Builder
	for _, text := range slices.Compact(texts) {
		_, _ = out.WriteString(text + "\n")
	}
	return out.String()
}

// shownNames gives what `hawser show` shows by name, as other commands take it: agents and
// gateways as cluster/name, links as those of paths, exports as namespace/name.
func shownNames(what string, agents []status.Status) string {
	var out []string
	for _, s := range agents {
		switch what {
		case showConnections:
			for _, c := range s.Connections {
				ends := []string{s.Cluster + "/" + c.Gateway, c.RemoteCluster + "/" + c.RemoteGateway}
				slices.Sort(ends)
				out = append(out, ends[0]+"-"+ends[1])
			}
		case showPaths:
			for _, p := range s.Paths {
				out = append(out, p.Link)
			}
		case showExports:
			for _, e := range s.Exports {
				out = append(out, e.Namespace+"/"+e.Name)
			}
		case showClusters:
			for _, c := range s.Clusters {
				out = append(out, c.Name)
			}
		default:
			out = append(out, s.Cluster+"/"+s.Node)
		}
	}
	return linesOnce(out)
}

// tables gives the text form of `hawser show`: for each cluster what was asked for.
func tables(what string, agents []status.Status, wide bool) string {
	var parts []string
	var clusters [][]status.Status
	for i, s := range agents {
		if i == 0 || agents[i-1].Cluster != s.Cluster {
			clusters = append(clusters, nil)
		}
		clusters[len(clusters)-1] = append(clusters[len(clusters)-1], s)
	}
	for _, members := range clusters {
		title := fmt.Sprintf("Cluster %q", members[0].Cluster)
		if what == showAll {
			parts = append(parts, agentTable(title+": agents", members, wide).String(),
				clusterTable(title+": clusters", members).String(),
				connectionTable(title+": connections", members, wide).String(),
				pathTable(title+": paths", members, wide).String(),
				exportTable(title+": exports", members).String())
			continue
		}
		var t cli.Table
		switch what {
		case showConnections:
			t = connectionTable(title, members, wide)
		case showPaths:
			t = pathTable(title, members, wide)
		case showExports:
			t = exportTable(title, members)
		default:
			t = clusterTable(title, members)
		}
		parts = append(parts, t.String())
	}
	return strings.Join(parts, "\n")
}

// representative is the agent whose view of the clusterset counts for its cluster: a
// gateway hears most, and one that is ready is the most recent.
func representative(members []status.Status) status.Status {
	best := members[0]
	for _, s := range members[1:] {
		if rank(s) > rank(best) {
			best = s
		}
	}
	return best
}

func rank(s status.Status) int {
	n := 0
	if s.Gateway != "" {
		n++
	}
	if s.Ready {
		n += 2
	}
	return n
}

func agentTable(title string, members []status.Status, wide bool) cli.Table {
	t := cli.Table{Title: title, Head: []string{"NODE", "GATEWAY", "READY", "FABRIC", "BLOCKED", "FAILED", "DRIFT"}}
	if wide {
		t.Head = append(t.Head, "VERSION", "LAST ROUND", "TOOK", "PROBLEMS")
	}
	for _, s := range members {
		row := []string{s.Node, s.Gateway, cli.YesNo(s.Ready), s.Digest,
			fmt.Sprint(len(s.LastPass.Blocked)), fmt.Sprint(len(s.LastPass.Failed)), fmt.Sprint(s.LastPass.Drift)}
		if wide {
			row = append(row, s.Version, formatTime(s.LastPass.At), s.LastPass.Took, fmt.Sprint(len(s.Problems)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func exportTable(title string, members []status.Status) cli.Table {
	t := cli.Table{Title: title, Head: []string{"EXPORT", "TYPE", "IP", "PORTS", "POLICY", "ALLOW", "MADE IN", "CONFLICT", "CLUSTERS"}}
	for _, e := range representative(members).Exports {
		var clusters []string
		for _, c := range e.Clusters {
			text := c.Name + ":" + c.Ready
			if len(c.IPs) > 0 {
				text += "(" + strings.Join(c.IPs, ",") + ")"
			}
			clusters = append(clusters, text)
		}
		allow := "all"
		if e.Allow != nil {
			allow = strings.Join(e.Allow, ",")
		}
		made, conflict := "topology", ""
		if e.Dynamic {
			made = "clusters"
		}
		if e.Conflict != nil {
			conflict = e.Conflict.Reason
		}
		t.Rows = append(t.Rows, []string{e.Namespace + "/" + e.Name, e.Type, strings.Join(e.VIPs, ","),
			strings.Join(e.Ports, ","), e.Policy, allow, made, conflict, strings.Join(clusters, " ")})
	}
	return t
}

func clusterTable(title string, members []status.Status) cli.Table {
	t := cli.Table{Title: title, Head: []string{"NAME", "PODS", "SERVICES", "GLOBAL", "GLOBALNET", "EGRESS", "GATEWAYS"}}
	for _, c := range representative(members).Clusters {
		t.Rows = append(t.Rows, []string{c.Name, strings.Join(c.PodCIDRs, ","), strings.Join(c.ServiceCIDRs, ","),
			strings.Join(c.GlobalCIDRs, ","), cli.YesNo(c.Globalnet), c.EgressMode, strings.Join(c.Gateways, ",")})
	}
	return t
}
