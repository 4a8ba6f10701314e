package schema

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
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
	out := labels(s.Spec.Exports, func(e *Export) string { return joinName(e.Namespace, e.Name) })
	for i := range out {
		out[i] = at("exports", out[i])
	}
	return out
}

// gatewayPaths gives the path of each gateway of the cluster at path.
func (c *Cluster) gatewayPaths(path string) []string {
	out := labels(c.Gateways, func(g *Gateway) string { return g.Name })
	for i := range out {
		out[i] = at(path+".gateways", out[i])
	}
	return out
}

// egressPaths gives the path of each egress rule of the cluster at path.
func (c *Cluster) egressPaths(path string) []string {
	out := labels(c.Egress, func(r *EgressRule) string { return r.Name })
	for i := range out {
		out[i] = at(path+".egress", out[i])
	}
	return out
}

// joinName makes one name of the fields that name an item; it is empty when one
// of them is.
func joinName(parts ...string) string {
	if slices.Contains(parts, "") {
		return ""
	}
	return strings.Join(parts, "/")
}

// namingOf gives the fields that name an item of type t (the name tag of its
// blank field), or nil.
func namingOf(t reflect.Type) []string {
	if t.Kind() != reflect.Struct {
		return nil
	}
	f, ok := t.FieldByName("_")
	if !ok {
		return nil
	}
	return strings.Split(f.Tag.Get("name"), "/")
}

// nodeName gives the name of a list item that is not decoded yet.
func nodeName(n *yaml.Node, naming []string) string {
	if len(naming) == 0 || n.Kind != yaml.MappingNode {
		return ""
	}
	parts := make([]string, len(naming))
	for i := len(n.Content) - 2; i >= 0; i -= 2 { // of a key that occurs twice the first counts
		if at := slices.Index(naming, n.Content[i].Value); at >= 0 {
			parts[at], _ = plainText(n.Content[i+1])
		}
	}
	return joinName(parts...)
}

// parentPath cuts the last part off a path: the last brackets, or the last field.
func parentPath(path string) string {
	if strings.HasSuffix(path, "]") {
		return path[:max(strings.LastIndexByte(path, '['), 0)]
	}
	return path[:max(strings.LastIndexByte(path, '.'), 0)]
}
