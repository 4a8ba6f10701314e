package schema

import "hawser.dev/hawser/schema/paths"

// ClusterPaths gives the path of each cluster.
func (s *ClusterSet) ClusterPaths() []string {
	out := paths.Labels(s.Spec.Clusters, func(c *Cluster) string { return c.Name })
	for i := range out {
		out[i] = paths.At("clusters", out[i])
	}
	return out
}

// ExportPaths gives the path of each export.
func (s *ClusterSet) ExportPaths() []string {
	out := paths.Labels(s.Spec.Exports, func(e *Export) string { return paths.Name(e.Namespace, e.Name) })
	for i := range out {
		out[i] = paths.At("exports", out[i])
	}
	return out
}

// GatewayPaths gives the path of each gateway of the cluster at path.
func (c *Cluster) GatewayPaths(path string) []string {
	out := paths.Labels(c.Gateways, func(g *Gateway) string { return g.Name })
	for i := range out {
		out[i] = paths.At(path+".gateways", out[i])
	}
	return out
}

// EgressPaths gives the path of each egress rule of the cluster at path.
func (c *Cluster) EgressPaths(path string) []string {
	out := paths.Labels(c.Egress, func(r *EgressRule) string { return r.Name })
	for i := range out {
		out[i] = paths.At(path+".egress", out[i])
	}
	return out
}
