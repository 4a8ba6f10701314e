package discover

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/schema/validate"
)

// MaxRequest is the largest join request, in bytes.
const MaxRequest = 64 << 10

// Request is a join request: the owner of a cluster asks the owners of a topology to add it. It has
// only fields that discovery finds, so it cannot set owners, global blocks or the tunnel driver.
type Request struct {
	APIVersion string         `json:"apiVersion" required:"true" enum:"hawser.dev/v1alpha1"`
	Kind       string         `json:"kind" required:"true" enum:"JoinRequest"`
	ClusterSet string         `json:"clusterset" required:"true"` // name of the clusterset
	Cluster    RequestCluster `json:"cluster"`
}

// RequestCluster is the cluster of a join request. It has fields of schema.Cluster.
type RequestCluster struct {
	Name         string           `json:"name"`
	PodCIDRs     []netip.Prefix   `json:"podCIDRs"`
	ServiceCIDRs []netip.Prefix   `json:"serviceCIDRs"`
	DNS          string           `json:"dns"`
	Recipient    string           `json:"recipient"`
	Gateways     []RequestGateway `json:"gateways"`
}

// RequestGateway is a gateway of a join request. It has fields of schema.Gateway.
type RequestGateway struct {
	_         struct{} `name:"name"`
	Name      string   `json:"name"`
	Node      string   `json:"node"`
	Endpoints []string `json:"endpoints"`
}

// RequestYAML returns the cluster's join request. A comment behind each value names its source.
func (c *Cluster) RequestYAML(clusterset, recipient string) string {
	return fmt.Sprintf(`# Request to add cluster %[1]s to clusterset %[2]s. It contains no secret.
# An owner of the topology reads it with "hawser join --from FILE".
apiVersion: hawser.dev/v1alpha1
kind: JoinRequest
clusterset: %[3]s
cluster:
  %[4]s`, c.Name, clusterset, scalar(clusterset), strings.TrimPrefix(c.ClusterYAML(recipient), "- "))
}

// ReadRequest decodes a join request and checks its cluster as a further cluster of set. The list
// has all findings with their positions in the request. Use the cluster only if the list has no
// errors.
func ReadRequest(file string, raw []byte, set *schema.ClusterSet) (schema.Cluster, diag.List) {
	if len(raw) > MaxRequest {
		return schema.Cluster{}, diag.List{{Severity: diag.Error, Code: "too-large", Pos: diag.Pos{File: file},
			Summary: fmt.Sprintf("the join request is larger than %d KiB", MaxRequest>>10), Hint: "ask the owner of the cluster for a shorter one"}}
	}
	var r Request
	list := load.Document(file, raw, &r, func() diag.List { return r.check(set) })
	return r.cluster(), list
}

// cluster returns the entry of the topology.
func (r *Request) cluster() schema.Cluster {
	c := schema.Cluster{Name: r.Cluster.Name, PodCIDRs: r.Cluster.PodCIDRs, ServiceCIDRs: r.Cluster.ServiceCIDRs, DNS: r.Cluster.DNS, Recipient: r.Cluster.Recipient}
	for _, g := range r.Cluster.Gateways {
		c.Gateways = append(c.Gateways, schema.Gateway{Name: g.Name, Node: g.Node, Endpoints: g.Endpoints})
	}
	return c
}

// check returns the errors of the topology that the request would cause.
func (r *Request) check(set *schema.ClusterSet) diag.List {
	var findings diag.Findings
	if r.ClusterSet != "" && r.ClusterSet != set.Metadata.Name {
		findings.Fail("other-clusterset", "clusterset", fmt.Sprintf("the request is for clusterset %s, and this one is %s", diag.Quote(r.ClusterSet), set.Metadata.Name),
			"ask the owner of the cluster for a request with --clusterset "+set.Metadata.Name)
	}
	for _, c := range set.Spec.Clusters {
		if r.Cluster.Name == c.Name {
			findings.Fail("duplicate-name", "cluster.name", fmt.Sprintf("the topology already has a cluster %s", c.Name),
				"ask the owner of the cluster for a request with --context NAME=CONTEXT")
		}
		if r.Cluster.Recipient != "" && r.Cluster.Recipient == c.Recipient {
			findings.Fail("shared-recipient", "cluster.recipient", fmt.Sprintf("cluster %s has the same recipient: each could decrypt the keys of the other", c.Name),
				"ask the owner of the cluster for a request with an identity of its own")
		}
	}
	if findings.List.HasErrors() {
		return findings.List
	}
	joined := *set
	joined.Spec.Clusters = append(slices.Clone(set.Spec.Clusters), r.cluster())
	schema.Default(&joined)
	clusterPath := joined.ClusterPaths()[len(set.Spec.Clusters)]
	inRequest := func(path string) (string, bool) {
		rest, ok := strings.CutPrefix(path, clusterPath)
		return "cluster" + rest, ok && (rest == "" || rest[0] == '.')
	}
	for _, d := range validate.Topology(&joined) {
		if d.Severity != diag.Error {
			continue // insert prints warnings with their lines in the topology
		}
		path, ok := inRequest(d.Path)
		if !ok { // another cluster's value conflicts with the request
			path, d.Summary = "cluster", d.Path+": "+d.Summary
			for _, other := range d.Related {
				if requestPath, ok := inRequest(other.Path); ok {
					path = requestPath
				}
			}
		}
		findings.Fail(d.Code, path, d.Summary, d.Hint)
	}
	return findings.List
}

// EntryYAML returns a cluster of a join request as an item of spec.clusters, without indentation.
func EntryYAML(c schema.Cluster) string {
	var out strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) }
	line("- name: %s", scalar(c.Name))
	for _, p := range []struct {
		field string
		list  []netip.Prefix
	}{{"podCIDRs", c.PodCIDRs}, {"serviceCIDRs", c.ServiceCIDRs}} {
		if len(p.list) == 0 {
			continue
		}
		var texts []string
		for _, prefix := range p.list {
			text := prefix.String()
			if prefix.Addr().Is6() {
				text = `"` + text + `"`
			}
			texts = append(texts, text)
		}
		line("  %s: [%s]", p.field, strings.Join(texts, ", "))
	}
	if c.DNS != "" {
		line("  dns: %s", scalar(c.DNS))
	}
	line("  recipient: %s", scalar(c.Recipient))
	line("  gateways:")
	for _, g := range c.Gateways {
		line("  - name: %s\n    node: %s", scalar(g.Name), scalar(g.Node))
		if len(g.Endpoints) == 0 {
			continue
		}
		var texts []string
		for _, text := range g.Endpoints {
			if a, err := netip.ParseAddr(text); !fabric.IsEndpointSource(text) && (err != nil || !a.Is4()) {
				text = scalar(text)
			}
			texts = append(texts, text)
		}
		line("    endpoints: [%s]", strings.Join(texts, ", "))
	}
	return out.String()
}
