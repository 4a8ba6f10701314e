package validate

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
)

// relativePath matches a relative path of a file in the topology's directory.
var relativePath = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)

// settings checks the settings of the clusterset.
func (c *checker) settings() {
	if p := c.set.Spec.Trust.Commits; p != "" && (!relativePath.MatchString(p) || path.IsAbs(p) || path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../")) {
		c.Fail("bad-path", "trust.commits", fmt.Sprintf("%q is no path below the directory of this file", p),
			"put the file into the same directory and write its name: allowed_signers")
	}
	spec := &c.set.Spec
	c.label("metadata.name", c.set.Metadata.Name)
	c.domains(append([]string{spec.Domain}, spec.ExtraDomains...))
	if ttl := spec.DNS.TTL; ttl != nil && time.Duration(*ttl)%time.Second != 0 {
		c.Fail("bad-duration", "dns.ttl",
			fmt.Sprintf("%s is not a whole number of seconds, which is all that DNS can say", time.Duration(*ttl)), "")
	}
	c.epochs()
	c.metrics()
	c.openPGPKeys()
	c.agent()
	c.ui()
}

// domains checks the DNS domains of the clusterset; the first one is the field domain.
func (c *checker) domains(list []string) {
	seen := uniqueness{}
	for i, d := range list {
		path := "domain"
		if i > 0 {
			path = fieldpath.Index("extraDomains", i-1)
			if d == "" {
				c.Fail("required", path, "is missing", "")
			}
		}
		if d == "" {
			continue
		}
		if earlier, dup := seen.add(fabric.CanonicalDomain(d), path); dup {
			c.Fail("duplicate", path, diag.Quote(fabric.CanonicalDomain(d))+" is a domain of the clusterset already", "", earlier)
		} else if why := fabric.DomainConflict(d, list[:i]); why != "" {
			c.Fail("bad-name", path, diag.Quote(d)+" "+why, "use a domain of your own, such as clusterset.local")
		} else {
			c.domain(path, d)
		}
	}
}

// maxEpochs bounds the key epochs in use: gateways have ports and addresses for two
// neighbouring epochs.
const maxEpochs = 2

func (c *checker) epochs() {
	epochs := c.set.Spec.Keys.Epochs
	for i, e := range epochs {
		path := fieldpath.Index("keys.epochs", i)
		switch {
		case e < 1:
			c.Fail("out-of-range", path, fmt.Sprintf("epoch %d is less than 1", e), "")
		case i > 0 && e <= epochs[i-1]:
			c.Fail("epoch-order", path, fmt.Sprintf("epoch %d does not follow on %d", e, epochs[i-1]),
				"list each epoch once, in ascending order", fieldpath.Index("keys.epochs", i-1))
		case i >= maxEpochs:
			c.Fail("too-many-epochs", path,
				fmt.Sprintf("epoch %d would be in use with %d others; the maximum is two", e, i),
				"drop the oldest first, once no link uses it")
		case i > 0 && epochs[i-1] > 0 && e != epochs[i-1]+1:
			c.Fail("epoch-gap", path,
				fmt.Sprintf("epoch %d cannot be in use together with %d; only the next epoch can", e, epochs[i-1]),
				fmt.Sprintf("write %d", epochs[i-1]+1), fieldpath.Index("keys.epochs", i-1))
		}
	}
}

// checkOnlyWith checks that a list is present exactly if its setting is.
func (c *checker) checkOnlyWith(path string, present, wanted bool, setting string) {
	switch {
	case present && !wanted:
		c.Fail("misplaced", path, "is used with "+setting+" only", "")
	case wanted && !present:
		c.Fail("required", path, "is missing: "+setting+" needs it", "")
	}
}

// members checks the names and the parts of each cluster.
func (c *checker) members() {
	if len(c.set.Spec.Clusters) == 0 && !c.set.Spec.Decommission {
		c.Fail("no-clusters", "clusters", "the clusterset has no clusters",
			"to take everything down on purpose say decommission: true")
	}
	names := uniqueness{}
	for i := range c.set.Spec.Clusters {
		cluster, path := &c.set.Spec.Clusters[i], c.clusterPaths[i]
		c.label(path+".name", cluster.Name)
		c.unique(names, cluster.Name, path, "the name "+cluster.Name+" is taken by another cluster")
		c.gateways(cluster, path)
		c.egress(cluster, path)
	}
}

func (c *checker) gateways(cluster *schema.Cluster, path string) {
	names, nodes := uniqueness{}, uniqueness{}
	if n := placementTerms(cluster); n > maxPlacementTerms {
		c.Fail("too-many", path+".gateways",
			fmt.Sprintf("there are %d ways in which a node may lack a label of each nodeSelector, %d are allowed", n, maxPlacementTerms),
			"let each nodeSelector be one label, such as "+gatewayLabel)
	}
	if n := len(cluster.AllGateways()); n > fabric.MaxGateways {
		c.Fail("too-many", path+".gateways", fmt.Sprintf("%d gateways, a cluster can have %d", n, fabric.MaxGateways), "")
	}
	for i, p := range cluster.GatewayPaths(path) {
		g := &cluster.Gateways[i]
		c.gatewayPorts(cluster, g, p)
		c.label(p+".name", g.Name)
		c.unique(names, g.Name, p, "the name "+g.Name+" is taken by another gateway of the cluster")
		if g.NodeSelector != nil {
			c.selectedGateways(g, p, names)
			continue
		}
		if g.Node == "" {
			c.Fail("required", p+".node", "is missing", "name the node, or say by nodeSelector which nodes it may be")
		}
		if g.AllowNodeLabels {
			c.Fail("misplaced", p+".allowNodeLabels", "is used with nodeSelector only", "remove it: a node's name cannot be changed")
		}
		if g.Count != nil {
			c.Fail("misplaced", p+".count", "is used with nodeSelector only", "a gateway with a node is one")
		}
		c.domain(p+".node", g.Node)
		c.unique(nodes, g.Node, p+".node", "node "+g.Node+" has a gateway already")
	}
}

// maxPlacementTerms is the maximum number of terms in the node affinity that excludes possible
// gateway nodes from the agents of other nodes.
const maxPlacementTerms = 64

// placementTerms returns the number of these terms: the combinations of one label from each
// selector.
func placementTerms(c *schema.Cluster) int {
	n, seen := 1, map[string]bool{}
	for _, g := range c.Gateways {
		if text := fmt.Sprint(g.NodeSelector); len(g.NodeSelector) > 0 && !seen[text] {
			seen[text] = true
			n = min(n*len(g.NodeSelector), 1<<20)
		}
	}
	return n
}

// gatewayLabel is the label that findings recommend for gateways.
const gatewayLabel = `node-restriction.kubernetes.io/hawser-gateway: "true"`

// kubeletLabels are the labels of the domains kubernetes.io and k8s.io that kubelets may set
// on their own Node (k8s.io/kubelet/pkg/apis). Kubelets may also set labels below
// kubelet.kubernetes.io and node.kubernetes.io.
var kubeletLabels = []string{
	"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	"topology.kubernetes.io/zone", "topology.kubernetes.io/region",
	"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
	"node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type",
}

// isRestrictedLabel reports whether the NodeRestriction admission plugin prevents kubelets from
// adding, changing and removing a label of their own Node. It rejects all labels of kubernetes.io
// and k8s.io, except the known labels of kubelets.
func isRestrictedLabel(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	in := func(parents ...string) bool {
		return slices.ContainsFunc(parents, func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) })
	}
	return strings.Contains(key, "/") && in("kubernetes.io", "k8s.io") &&
		!in("kubelet.kubernetes.io", "node.kubernetes.io") && !slices.Contains(kubeletLabels, key)
}

// selectedGateways checks gateways whose nodes are selected by labels.
func (c *checker) selectedGateways(g *schema.Gateway, path string, names uniqueness) {
	if g.Node != "" {
		c.Fail("misplaced", path+".nodeSelector", "is used without node only",
			"remove one of both: node is always the same one, nodeSelector lets another take over", path+".node")
	}
	if len(g.NodeSelector) == 0 {
		c.Fail("required", path+".nodeSelector", "is empty, and would pick every node",
			"write a label that the nodes have: nodeSelector: {"+gatewayLabel+"}")
	}
	c.labels(g.NodeSelector, path+".nodeSelector")
	if keys := slices.Sorted(maps.Keys(g.NodeSelector)); len(keys) > 0 && !g.AllowNodeLabels && !slices.ContainsFunc(keys, isRestrictedLabel) {
		c.Fail("node-label", path+".nodeSelector",
			"kubelets may set "+strings.Join(keys, ", ")+" on their own Node: any node could make itself a gateway and read the cluster's private keys",
			"add a label that the NodeRestriction admission plugin protects, such as "+gatewayLabel+
				" (kubectl label node NODE node-restriction.kubernetes.io/hawser-gateway=true), or accept this risk with allowNodeLabels: true")
	}
	for _, half := range []struct{ field, key string }{{".publicKey", g.PublicKey}, {".ikePublicKey", g.IKEPublicKey}} {
		if half.key != "" {
			c.Fail("misplaced", path+half.field, "is used with node only",
				"the private half is on one node, and the gateway may be on any that nodeSelector picks",
				path+".nodeSelector")
		}
	}
	if g.HasStaticEndpoint() && g.Size() > 1 {
		c.Fail("misplaced", path+".endpoints", fmt.Sprintf("%d gateways cannot be at one endpoint", g.Size()),
			"leave endpoints out, and they dial out, let them be found, as in endpoints: [node:ExternalIP], or set count: 1",
			path+".count")
	}
	for i := range g.Size() {
		name := fmt.Sprintf("%s-%d", g.Name, i+1)
		if g.Name != "" && !fabric.IsLabel(name) && fabric.IsLabel(g.Name) {
			c.Fail("bad-name", path+".name", name+" is longer than 63 characters", "shorten the name")
			break
		}
		c.unique(names, name, path, "the name "+name+" is taken by another gateway of the cluster")
	}
}

func (c *checker) egress(cluster *schema.Cluster, path string) {
	names, wholeNamespace := uniqueness{}, uniqueness{}
	for i, p := range cluster.EgressPaths(path) {
		rule := &cluster.Egress[i]
		c.label(p+".name", rule.Name)
		c.label(p+".namespace", rule.Namespace)
		c.unique(names, rule.Name, p, "the name "+rule.Name+" is taken by another rule of the cluster")
		if rule.PodSelector == nil {
			c.unique(wholeNamespace, rule.Namespace, p,
				"the whole namespace "+rule.Namespace+" has a rule already")
			continue
		}
		c.labels(rule.PodSelector.MatchLabels, p+".podSelector.matchLabels")
	}
}

func (c *checker) labels(labels map[string]string, path string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if value := labels[key]; !fabric.IsQualified(key) || value != "" && !fabric.IsLabelText(value) {
			c.Fail("bad-label", fieldpath.Key(path, key), fmt.Sprintf("%q: %q is not a Kubernetes label", key, value),
				"a label is [prefix/]name: value of at most 63 letters, digits, -, _ and ., with a letter or digit at both ends")
		}
	}
}

// maxAnnotations bounds the annotations of an export, in bytes. They are sent between
// clusters, so the limit is far below the limit of Kubernetes.
const maxAnnotations = 16 << 10

func (c *checker) annotations(annotations map[string]string, path string) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		size += len(key) + len(annotations[key])
		if !fabric.IsQualified(key) {
			c.Fail("bad-label", fieldpath.Key(path, key), fmt.Sprintf("%q is not the key of an annotation", key),
				"a key is [prefix/]name of at most 63 letters, digits, -, _ and ., with a letter or digit at both ends")
		}
	}
	if size > maxAnnotations {
		c.Fail("too-large", path, fmt.Sprintf("the annotations have %d bytes, %d are allowed", size, maxAnnotations), "")
	}
}
