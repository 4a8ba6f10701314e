package lab

import (
	"fmt"
	"net/netip"
	"strings"

	kyaml "sigs.k8s.io/yaml"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
)

const (
	topologyFile = "clusterset.yaml"
	lockFile     = "clusterset.lock.yaml"
)

// topology holds the fields of a topology file that the lab uses.
type topology struct {
	name     string
	epochs   []int
	domain   string
	dns      []netip.Addr // IPv4 first
	clusters []cluster
}

type cluster struct {
	name         string
	podCIDRs     []netip.Prefix
	serviceCIDRs []netip.Prefix
	recipient    string
	gateways     []schema.Gateway
}

// parseTopology decodes a topology file without validation, because the reconciler validates it and
// the lab only applies published commits.
func parseTopology(raw []byte) (topology, error) {
	var set schema.ClusterSet
	if err := kyaml.Unmarshal(raw, &set); err != nil {
		return topology{}, fmt.Errorf("read topology: %w", err)
	}
	schema.Default(&set)
	t := topology{name: set.Metadata.Name, epochs: set.Spec.Keys.Epochs, domain: set.Spec.Domain}
	for _, a := range []netip.Addr{set.Spec.DNS.Address, set.Spec.DNS.IPv6Address} {
		if a.IsValid() {
			t.dns = append(t.dns, a)
		}
	}
	for _, c := range set.Spec.Clusters {
		if c.Name == "" {
			return topology{}, fmt.Errorf("read topology: a cluster has no name")
		}
		t.clusters = append(t.clusters, cluster{
			name: c.Name, podCIDRs: c.PodCIDRs, serviceCIDRs: c.ServiceCIDRs, recipient: c.Recipient, gateways: c.Gateways,
		})
	}
	return t, nil
}

func (t topology) cluster(name string) (cluster, bool) {
	for _, c := range t.clusters {
		if c.name == name {
			return c, true
		}
	}
	return cluster{}, false
}

func (t topology) names() string {
	var names []string
	for _, c := range t.clusters {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

// literal returns the address of an endpoint, or its name if it has the form dns:NAME. It ignores
// the port.
func literal(endpoint string) (netip.Addr, string, error) {
	e, err := fabric.ParseEndpoint(endpoint)
	if err != nil {
		return netip.Addr{}, "", fmt.Errorf("endpoint %q is neither an address nor dns:NAME", endpoint)
	}
	return e.Addr, e.Name, nil
}
