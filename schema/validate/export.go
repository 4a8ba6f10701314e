package validate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
)

// exports checks the exports that the topology declares.
func (c *checker) exports() {
	seen := uniqueness{}
	for i, path := range c.exportPaths {
		e := &c.set.Spec.Exports[i]
		c.exportName(path+".name", e.Name)
		c.label(path+".namespace", e.Namespace)
		c.unique(seen, fieldpath.Name(e.Namespace, e.Name), path, e.ID()+" is exported already; one entry lists all its clusters")
		c.clusterNames(path+".clusters", e.Clusters)
		if e.Allow != nil {
			c.allow(e, path+".allow.clusters")
		}
		c.labels(e.Labels, path+".labels")
		c.annotations(e.Annotations, path+".annotations")
		c.ports(e, path)
		c.balance(e, path+".balance")
		c.checkNameLengths(e, path)
		if e.Headless() {
			c.headless(e, path)
		} else if e.Hostnames.Count != 0 || len(e.Hostnames.Names) > 0 {
			c.Fail("misplaced", path+".hostnames", "only pods of a headless Service have addresses of their own",
				"say type: Headless, or remove hostnames")
		}
	}
}

// checkNameLengths reports DNS names of an export that are longer than DNS allows. It checks only
// the declared hostnames of pods; the agents report other pods.
func (c *checker) checkNameLengths(e *schema.Export, path string) {
	domains := append([]string{c.set.Spec.Domain}, c.set.Spec.ExtraDomains...)
	invalid := func(domain string) bool { return !fabric.IsDomain(domain) }
	labels := fabric.IsLabel(e.Name) && fabric.IsLabel(e.Namespace)
	if slices.ContainsFunc(domains, invalid) || !labels {
		return // other checks report it
	}
	if name := fabric.LongestName(domains, e.Namespace, e.Name); len(name) > fabric.MaxName {
		c.Fail("name-too-long", path, fmt.Sprintf("no client can resolve the service: its DNS name %q has %d octets, %d are allowed",
			name, len(name), fabric.MaxName), "shorten name, namespace or domain")
		return
	}
	const hint = "shorten the names of the pod, cluster, service or namespace, or the domain"
	for _, cluster := range e.Clusters {
		if name := fabric.LongestName(domains, e.Namespace, e.Name, cluster); len(name) > fabric.MaxName {
			c.Warn("name-too-long", path, fmt.Sprintf("the part of cluster %s has no DNS name: %q would have %d octets, %d are allowed",
				cluster, name, len(name), fabric.MaxName), hint)
			continue
		}
		for i, host := range e.Hostnames.Names {
			if name := fabric.LongestName(domains, e.Namespace, e.Name, host, cluster); len(name) > fabric.MaxName {
				c.Warn("name-too-long", fieldpath.Index(path+".hostnames", i), fmt.Sprintf(
					"pod %s of cluster %s has no DNS name: %q would have %d octets, %d are allowed",
					host, cluster, name, len(name), fabric.MaxName), hint)
			}
		}
	}
}

// exportName checks the name of an export. A name with a dot is most likely NAME.NAMESPACE, as
// clients use it; the hint then has both parts.
func (c *checker) exportName(path, text string) {
	name, namespace, dotted := strings.Cut(text, ".")
	if !dotted || !fabric.IsLabel(name) || !fabric.IsLabel(namespace) {
		c.label(path, text)
		return
	}
	c.Fail("bad-name", path, fmt.Sprintf("%q is not a DNS label", text),
		fmt.Sprintf("write name: %s, namespace: %s", name, namespace))
}

func (c *checker) allow(e *schema.Export, path string) {
	c.clusterNames(path, e.Allow.Clusters)
	hasOther := slices.ContainsFunc(e.Allow.Clusters, func(name string) bool { return !slices.Contains(e.Clusters, name) })
	if !hasOther && len(c.set.Spec.Clusters) > len(e.Clusters) {
		c.Warn("no-cluster-allowed", path, "only the exporting clusters may reach it",
			"without allow every cluster may")
	}
}

// ports applies the rules of Kubernetes for the ports of a Service.
func (c *checker) ports(e *schema.Export, path string) {
	names, numbers := uniqueness{}, uniqueness{}
	for i := range e.Ports {
		p, at := &e.Ports[i], fieldpath.Index(path+".ports", i)
		c.label(at+".name", p.Name)
		if p.Name == "" && len(e.Ports) > 1 {
			c.Fail("required", at+".name", "is missing: with more than one port each needs a name", "")
		}
		c.unique(names, p.Name, at+".name", "the name "+p.Name+" is taken by another port")
		if p.Port != 0 {
			number := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
			c.unique(numbers, number, at+".port", number+" is listed twice")
		}
		if p.AppProtocol != "" && !fabric.IsQualified(p.AppProtocol) {
			c.Fail("bad-name", at+".appProtocol", fmt.Sprintf("%q is not an application protocol", p.AppProtocol),
				"write a name such as http, or one with a domain such as kubernetes.io/h2c")
		}
	}
}

// balance checks that weights and order match the policy and list exporting clusters. A headless
// export accepts only local-first.
func (c *checker) balance(e *schema.Export, path string) {
	b := &e.Balance
	c.checkOnlyWith(path+".weights", len(b.Weights) > 0, b.Policy == fabric.Weighted,
		"policy: weighted")
	c.checkOnlyWith(path+".order", len(b.Order) > 0, b.Policy == fabric.Failover, "policy: failover")
	seen := uniqueness{}
	for i, name := range b.Order {
		c.checkExports(e, fieldpath.Index(path+".order", i), name)
		c.unique(seen, name, fieldpath.Index(path+".order", i), "cluster "+name+" is listed twice")
	}
	for _, name := range slices.Sorted(maps.Keys(b.Weights)) {
		c.checkExports(e, fieldpath.Key(path+".weights", name), name)
	}
	if b.Policy == fabric.Weighted && len(b.Weights) > 0 {
		c.warnUnlisted(e, path+".weights", slices.Sorted(maps.Keys(b.Weights)))
	}
	if b.Policy == fabric.Failover && len(b.Order) > 0 {
		c.warnUnlisted(e, path+".order", b.Order)
	}
	if e.Headless() && b.Policy != "" && b.Policy != fabric.LocalFirst {
		c.Fail("misplaced", path, "callers of a headless Service choose among its pods themselves", "remove balance")
	}
}

// checkExports checks that a cluster named in a policy exports the service.
func (c *checker) checkExports(e *schema.Export, path, name string) {
	if slices.Contains(e.Clusters, name) {
		return
	}
	if _, exists := c.clusters[name]; !exists {
		c.knownCluster(path, name)
		return
	}
	c.Fail("not-exporting", path, fmt.Sprintf("cluster %s does not export %s", name, e.ID()),
		"the clusters that do: "+strings.Join(e.Clusters, ", "))
}

// warnUnlisted warns about exporting clusters that the policy does not list. Clients use them only
// while no listed cluster is ready.
func (c *checker) warnUnlisted(e *schema.Export, path string, named []string) {
	for _, name := range e.Clusters {
		if !slices.Contains(named, name) {
			c.Warn("last-resort", path,
				fmt.Sprintf("cluster %s exports %s and is chosen only while no named cluster is ready", name, e.ID()), "")
		}
	}
}

func (c *checker) headless(e *schema.Export, path string) {
	if e.SessionAffinity != "" {
		c.Fail("misplaced", path+".sessionAffinity",
			"a headless Service has no affinity, as callers choose among its pods themselves", "")
	}
	c.hostnames(e, path+".hostnames")
}

// maxHostnames is the maximum number of pods with fixed addresses, per export and cluster.
const maxHostnames = 4096

func (c *checker) hostnames(e *schema.Export, path string) {
	if n := e.Hostnames.Count; n < 0 || n > maxHostnames {
		c.Fail("out-of-range", path, fmt.Sprintf("%d is not in the range 0 to %d", n, maxHostnames), "")
	}
	seen := uniqueness{}
	for i, name := range e.Hostnames.Names {
		at := fieldpath.Index(path, i)
		if name == "" {
			c.Fail("required", at, "is missing", "")
		}
		c.label(at, name)
		c.unique(seen, name, at, "hostname "+name+" is listed twice")
	}
}
