package schema

import (
	"net/netip"
	"strconv"
)

// labels gives what stands in the brackets of each item's path: its name, or
// its index when it has none or an earlier item has the same.
func labels[T any](items []T, name func(*T) string) []string {
	out := make([]string, len(items))
	seen := make(map[string]bool, len(items))
	for i := range items {
		out[i] = label(seen, name(&items[i]), i)
	}
	return out
}

func label(seen map[string]bool, name string, index int) string {
	if name == "" || seen[name] {
		return strconv.Itoa(index)
	}
	seen[name] = true
	return name
}

// at appends a bracketed label to a path.
func at(path, label string) string { return path + "[" + label + "]" }

// nth appends an index to a path.
func nth(path string, index int) string { return at(path, strconv.Itoa(index)) }

// clusterPaths gives the path of each cluster.
func (s *ClusterSet) clusterPaths() []string {
	out := labels(s.Spec.Clusters, func(c *Cluster) string { return c.Name })
	for i := range out {
		out[i] = at("clusters", out[i])
	}
	return out
}

// exportPaths gives the path of each export.
func (s *ClusterSet) exportPaths() []string {
	out := labels(s.Spec.Exports, func(e *Export) string { return exportName(e.Namespace, e.Name) })
	for i := range out {
		out[i] = at("exports", out[i])
	}
	return out
}

// exportName is the name of an export in paths; empty when one half is missing.
func exportName(namespace, name string) string {
	if namespace == "" || name == "" {
		return ""
	}
	return namespace + "/" + name
}

// prefixPaths gives each valid prefix of a list with its path, without host bits.
func prefixPaths(path string, cluster int, prefixes []netip.Prefix) []member {
	var out []member
	for i, p := range prefixes {
		if p.IsValid() {
			out = append(out, member{cluster: cluster, path: nth(path, i), prefix: p.Masked()})
		}
	}
	return out
}
