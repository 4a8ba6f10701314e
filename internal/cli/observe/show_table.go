package observe

import (
	"fmt"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/nodeagent/status"
)

// Values of -o that print tables.
const (
	outWide = "wide" // more columns
	outName = "name" // only names, one per line
)

func tableOutputs() []string { return []string{"text", outWide, outName, "json", "yaml"} }

// linesOnce returns the sorted texts without duplicates, one per line.
func linesOnce(texts []string) string {
	slices.Sort(texts)
	var out strings.Builder
	for _, text := range slices.Compact(texts) {
		_, _ = out.WriteString(text + "\n")
	}
	return out.String()
}

// shownNames returns the names of the objects that `hawser show` lists, in the form that other
// commands accept: agents and gateways as cluster/name, links as in paths, exports as
// namespace/name.
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
		case showNodes:
			for _, n := range s.Nodes {
				out = append(out, s.Cluster+"/"+s.Node+"-"+s.Cluster+"/"+n.Node)
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

// tables returns the text form of `hawser show`: one table per kind and cluster. Equal tables of
// several clusters are printed once. Unless wide, tables have at most 120 columns with names of
// usual length.
func tables(what string, agents []status.Status, wide bool) string {
	kinds := []struct {
		what, name string
		of         func(members []status.Status, wide bool) cli.Table
	}{
		{showAll, "agents", agentTable}, {showClusters, "clusters", clusterTable}, {showConnections, "connections", connectionTable},
		{showPaths, "paths", pathTable}, {showNodes, "nodes", nodeTable}, {showExports, "exports", exportTable},
	}
	var clusters [][]status.Status
	for i, s := range agents {
		if i == 0 || agents[i-1].Cluster != s.Cluster {
			clusters = append(clusters, nil)
		}
		clusters[len(clusters)-1] = append(clusters[len(clusters)-1], s)
	}
	var parts []string
	for _, kind := range kinds {
		if what != showAll && what != kind.what {
			continue
		}
		var texts []string
		names := map[string][]string{}
		for _, members := range clusters {
			table := kind.of(members, wide)
			if what == showAll && kind.what == showNodes && len(table.Rows) == 0 {
				continue // the cluster uses VXLAN for all paths
			}
			text := table.String()
			if names[text] == nil {
				texts = append(texts, text)
			}
			names[text] = append(names[text], members[0].Cluster)
		}
		for _, text := range texts {
			title := tableTitle(names[text], len(clusters))
			if what == showAll {
				title += ": " + kind.name
			}
			parts = append(parts, title+"\n"+text)
		}
	}
	return strings.Join(parts, "\n")
}

// tableTitle returns the title of a table that is the same in the named clusters. all is the number
// of queried clusters.
func tableTitle(names []string, all int) string {
	switch {
	case len(names) == 1:
		return fmt.Sprintf("Cluster %q", names[0])
	case len(names) == all:
		return fmt.Sprintf("All %d clusters agree", all)
	}
	return fmt.Sprintf("Clusters %s agree", strings.Join(names, ", "))
}

// representative returns the agent whose view of the clusterset is shown for its cluster. Gateways
// come first, because they receive the most reports. Ready agents come before others.
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

func agentTable(members []status.Status, wide bool) cli.Table {
	t := cli.Table{Head: []string{"NODE", "GATEWAY", "READY", "FABRIC", "BLOCKED", "FAILED", "DRIFT"}}
	if wide {
		t.Head = append(t.Head, "VERSION", "LAST ROUND", "TOOK", "PROBLEMS")
	}
	for _, s := range members {
		row := []string{s.Node, s.Gateway, cli.YesNo(s.Ready), s.Digest,
			fmt.Sprint(len(s.LastRound.Blocked)), fmt.Sprint(len(s.LastRound.Failed)), fmt.Sprint(s.LastRound.Drift)}
		if wide {
			row = append(row, s.Version, formatTime(s.LastRound.At), s.LastRound.Took, fmt.Sprint(len(s.Problems)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// exportTable has a row for each export. READY counts the clusters that have a ready endpoint.
func exportTable(members []status.Status, wide bool) cli.Table {
	t := cli.Table{Head: []string{"EXPORT", "IP", "PORTS", "ALLOW", "READY", "CONFLICT"}}
	if wide {
		t.Head = append(t.Head, "TYPE", "POLICY", "DECLARED IN", "CLUSTERS")
	}
	for _, e := range representative(members).Exports {
		var clusters []string
		ready := 0
		for _, c := range e.Clusters {
			if c.Ready == "yes" {
				ready++
			}
			text := c.Name + ":" + c.Ready
			if len(c.IPs) > 0 {
				text += "(" + strings.Join(c.IPs, ",") + ")"
			}
			clusters = append(clusters, text)
		}
		allow := "all"
		if e.Allow != nil {
			allow = cellList(e.Allow, 12, wide)
		}
		declared, conflict := "topology", ""
		if e.Dynamic {
			declared = "clusters"
		}
		if e.Conflict != nil {
			conflict = e.Conflict.Reason
		}
		row := []string{e.Namespace + "/" + e.Name, cellList(e.VIPs, 15, wide), cellList(e.Ports, 16, wide), allow,
			fmt.Sprintf("%d of %d", ready, len(e.Clusters)), conflict}
		if wide {
			row = append(row, e.Type, e.Policy, declared, strings.Join(clusters, " "))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func clusterTable(members []status.Status, wide bool) cli.Table {
	t := cli.Table{Head: []string{"NAME", "PODS", "SERVICES", "GLOBAL", "GLOBALNET", "EGRESS", "GATEWAYS"}}
	for _, c := range representative(members).Clusters {
		t.Rows = append(t.Rows, []string{c.Name, cellList(c.PodCIDRs, 18, wide), cellList(c.ServiceCIDRs, 18, wide),
			cellList(c.GlobalCIDRs, 18, wide), cli.YesNo(c.Globalnet), c.EgressMode, cellList(c.Gateways, 15, wide)})
	}
	return t
}

// cellList formats a list for a cell. Unless wide, it returns at most width characters and the
// number of omitted items.
func cellList(items []string, width int, wide bool) string {
	if wide {
		return strings.Join(items, ",")
	}
	return cli.ShortList(items, width)
}
