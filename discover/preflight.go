package discover

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/fabric"
)

// Expected is a topology's description of one cluster.
type Expected struct {
	Cluster *schema.Cluster
	Pools   []netip.Prefix // of the clusterset: global addresses, clusterset IPs, tunnels
	Domains []string       // that agents serve
}

// oldestMinor is the minor version of the oldest supported Kubernetes
// (docs/requirements.md).
const oldestMinor = 30

// PreflightQueries returns the queries for the objects that Preflight reads.
func PreflightQueries() []Query {
	out := Queries()
	add := func(group, version, resource, name string) {
		q := Query{Name: name}
		q.Resource.Group, q.Resource.Version, q.Resource.Resource = group, version, resource
		out = append(out, q)
	}
	add("", "v1", "namespaces", render.Namespace)
	for _, name := range []string{crdImports, crdExports, crdNodes, crdGoogle, "submariners.submariner.io",
		"clusters.submariner.io"} {
		add("apiextensions.k8s.io", "v1", "customresourcedefinitions", name)
	}
	return out
}

const (
	crdImports      = "serviceimports.multicluster.x-k8s.io"
	crdExports      = "serviceexports.multicluster.x-k8s.io"
	crdNodes        = "hawsernodes.hawser.dev"
	crdGoogle       = "serviceimports.net.gke.io"
	hawserServerKey = "hawser.server" // key that gateways write to coredns-custom (nodeagent/cluster/apiobjects)
)

// Preflight checks a cluster against its topology entry before anything is applied there.
// An error must be fixed first; the user decides about a warning.
func Preflight(contextName string, o Objects, w Expected) diag.List {
	d := &analysis{Objects: o, Cluster: Analyze(w.Cluster.Name, contextName, o)}
	d.Findings = slices.DeleteFunc(d.Findings, func(f diag.Diagnostic) bool {
		return slices.Contains([]string{
			"pod-cidrs-unknown", "pod-cidrs-guess", "pod-cidrs-conflict",
			"service-cidrs-unknown", "service-cidrs-guess", "service-cidrs-conflict",
			"gateways-unknown", "private-endpoints", "no-endpoints", "control-plane-gateways",
			"dns-unknown", "domain-conflict",
		}, f.Code)
	})
	if w.Cluster.DNS == fabric.DNSNone {
		d.Findings = slices.DeleteFunc(d.Findings, func(f diag.Diagnostic) bool { return strings.HasSuffix(f.Path, ".dns") })
	}
	d.checkVersion()
	d.comparePrefixes("podCIDRs", "pod-cidrs-differ", d.PodCIDRs, w.Cluster.PodCIDRs)
	d.comparePrefixes("serviceCIDRs", "service-cidrs-differ", d.ServiceCIDRs,
		w.Cluster.ServiceCIDRs)
	d.checkGatewayNodes(w.Cluster)
	d.checkPools(w.Pools)
	d.checkDNS(w)
	d.checkNamespace()
	d.detectConflicting(w.Cluster)
	return d.Findings
}

func (d *analysis) checkVersion() {
	found := regexp.MustCompile(`^v?1\.(\d+)`).FindStringSubmatch(d.Cluster.Version)
	if found == nil {
		d.warn("version-unknown", "", fmt.Sprintf("the API server's version %q cannot be compared", d.Cluster.Version),
			fmt.Sprintf("make sure that it is Kubernetes 1.%d or later", oldestMinor))
		return
	}
	if minor, err := strconv.Atoi(found[1]); err != nil || minor < oldestMinor {
		d.fail("version-unsupported", "", "the cluster runs Kubernetes "+d.Cluster.Version,
			fmt.Sprintf("upgrade it to 1.%d or later", oldestMinor))
	}
}

// comparePrefixes adds a finding if the cluster has prefixes that the topology lacks.
func (d *analysis) comparePrefixes(field, code string, have Prefixes, want []netip.Prefix) {
	var missing []netip.Prefix
	for _, p := range have.CIDRs {
		if !slices.ContainsFunc(want, func(w netip.Prefix) bool { return w.Bits() <= p.Bits() && w.Overlaps(p) }) {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return
	}
	severity := diag.Warning
	if have.Confidence == Certain {
		severity = diag.Error
	}
	text := "nothing"
	if len(want) > 0 {
		text = humanize.Join(want, ", ")
	}
	d.add(severity, code, field, fmt.Sprintf("the cluster has %s (%s: %s), and the topology has %s", humanize.Join(missing, ", "),
		have.Confidence, have.From, text),
		"correct "+field+" in the topology, or check that the context is the right one")
}

func (d *analysis) checkGatewayNodes(c *schema.Cluster) {
	nodes := d.all("Node")
	if len(nodes) == 0 {
		return // unreadable, which is a finding already, or the cluster has no nodes yet
	}
	var names []string
	for _, n := range nodes {
		names = append(names, sanitize(n.GetName()))
	}
	for _, g := range c.Gateways {
		field := "gateways[" + g.Name + "].node"
		if g.Node == "" {
			d.checkSelectedNodes(&g, nodes)
			continue
		}
		node := d.object("Node", "", g.Node)
		switch {
		case node == nil:
			d.fail("gateway-node-missing", field, fmt.Sprintf("the cluster has no node %s, only %s", g.Node,
				firstNames(slices.Clone(names))),
				"correct the node in the topology, or check that the context is the right one")
		case !canBeGateway(node):
			d.checkEndpoints(&g, node)
			d.warn("gateway-node-not-ready", field, fmt.Sprintf("node %s is not ready, not schedulable, or does not run Linux",
				g.Node),
				"repair the node, or choose another node")
		default:
			d.checkEndpoints(&g, node)
		}
	}
}

// checkEndpoints warns if no endpoint of a gateway is an address of its Node. Names are not
// resolved, and discovered endpoints are correct by themselves.
func (d *analysis) checkEndpoints(g *schema.Gateway, node *unstructured.Unstructured) {
	nodeAddrs := slices.Concat(addresses(node, "InternalIP"), addresses(node, "ExternalIP"))
	var foreign []string
	for _, text := range g.Endpoints {
		e, err := fabric.ParseEndpoint(text)
		if err != nil || !e.Addr.IsValid() || slices.Contains(nodeAddrs, e.Addr) {
			return
		}
		foreign = append(foreign, e.Addr.String())
	}
	if len(foreign) == 0 || len(nodeAddrs) == 0 {
		return
	}
	d.warn("endpoint-not-on-node", "gateways["+g.Name+"].endpoints", fmt.Sprintf("%s: no address of node %s, which has %s",
		strings.Join(foreign, ", "), sanitize(node.GetName()), humanize.Join(nodeAddrs, ", ")),
		"correct the endpoints, unless a router or a load balancer forwards to the node: hawser preflight --pods tests them")
}

// checkSelectedNodes checks that enough nodes match a gateway's nodeSelector.
func (d *analysis) checkSelectedNodes(g *schema.Gateway, nodes []unstructured.Unstructured) {
	field := "gateways[" + g.Name + "].nodeSelector"
	matching, ready := 0, 0
	for _, n := range nodes {
		if !labels.SelectorFromSet(g.NodeSelector).Matches(labels.Set(n.GetLabels())) {
			continue
		}
		matching++
		if canBeGateway(&n) {
			ready++
		}
	}
	switch {
	case matching < g.Size():
		d.fail("gateway-node-missing", field, fmt.Sprintf("%d nodes of the cluster have these labels, and %d gateways need one each",
			matching, g.Size()),
			"label more nodes, or lower count; one more node than gateways lets another take over at once")
	case ready < g.Size():
		d.warn("gateway-node-not-ready", field, fmt.Sprintf("%d of the %d nodes with these labels are ready, schedulable and run Linux; %d gateways need one each",
			ready, matching, g.Size()),
			"repair the nodes, or label others")
	}
}

// checkPools finds addresses of the cluster inside the clusterset's pools.
func (d *analysis) checkPools(pools []netip.Prefix) {
	for _, n := range d.all("Node") {
		for _, a := range slices.Concat(addresses(&n, "InternalIP"), addresses(&n, "ExternalIP")) {
			for _, p := range pools {
				if p.Contains(a) {
					d.fail("node-in-pool", "", fmt.Sprintf("node %s has the address %s, which is in the clusterset's pool %s",
						sanitize(n.GetName()), a, p),
						"choose another pool in the topology: globalnet.cidr, services.cidr or tunnel.cidr")
				}
			}
		}
	}
}

func (d *analysis) checkDNS(w Expected) {
	want := w.Cluster.DNS
	if want == fabric.DNSNone {
		return
	}
	found := want == fabric.DNSAuto && (d.DNS.Value == fabric.DNSCoreDNS || d.DNS.Value == fabric.DNSImport)
	if d.DNS.Confidence == Certain && d.DNS.Value != want && !found {
		d.warn("dns-differs", "dns", fmt.Sprintf("the topology has dns: %s, and the cluster looks like %s (%s)", want,
			d.DNS.Value, d.DNS.From),
			"set dns: "+d.DNS.Value)
	}
	corefiles := map[string]string{"coredns": d.configMapValue(kubeSystem, "coredns", "Corefile"), "node-local-dns": d.configMapValue(kubeSystem, "node-local-dns", "Corefile")}
	if custom := d.object("ConfigMap", kubeSystem, "coredns-custom"); custom != nil {
		keys, _, _ := unstructured.NestedStringMap(custom.Object, "data")
		delete(keys, hawserServerKey)
		corefiles["coredns-custom"] = strings.Join(slices.Collect(maps.Values(keys)), "\n")
	}
	for _, name := range slices.Sorted(maps.Keys(corefiles)) {
		_, otherBlocks, _ := corefile.SplitBlock(corefiles[name])
		for _, domain := range w.Domains {
			if regexp.MustCompile(`(?m)(^|[\s/])` + regexp.QuoteMeta(domain) + `\.?(:\d+)?([\s{]|$)`).MatchString(otherBlocks) {
				d.warn("domain-conflict", "dns", "ConfigMap kube-system/"+name+" serves "+domain+" already",
					"remove it there, choose another domain, or set dns: none")
			}
			if reason := fabric.DomainConflict(domain, nil, corefile.ClusterDomains(otherBlocks)...); reason != "" {
				d.warn("domain-reserved", "dns", "ConfigMap kube-system/"+name+": "+diag.Quote(domain)+" "+reason+
					", so Hawser will not forward it", "choose another domain in the topology")
			}
		}
	}
}

// checkNamespace checks that the agents' namespace admits their pods.
func (d *analysis) checkNamespace() {
	if d.object("Network.config.openshift.io", "", "cluster") != nil {
		d.warn("openshift-scc", "", "OpenShift admits the agents' pods only with a SecurityContextConstraint",
			"allow the host's network, host paths and the DaemonSets' capabilities: "+compatibility)
	}
	n := d.object("Namespace", "", render.Namespace)
	if n == nil {
		return
	}
	if n.GetDeletionTimestamp() != nil {
		d.fail("namespace-terminating", "", "namespace "+render.Namespace+" is being deleted",
			"wait until it is gone, or find out which finalizer holds it")
	}
	if level := n.GetLabels()["pod-security.kubernetes.io/enforce"]; level != "" && level != "privileged" {
		d.warn("pod-security", "", fmt.Sprintf("namespace %s enforces the Pod Security level %s, which refuses the "+
			"agents' pods", render.Namespace, sanitize(level)),
			"let the manifests set it to privileged, and make sure that no other tool resets it")
	}
}

// detectConflicting finds other multi-cluster software that uses the same names.
func (d *analysis) detectConflicting(c *schema.Cluster) {
	definition := func(name string) bool {
		return d.object("CustomResourceDefinition.apiextensions.k8s.io", "", name) != nil
	}
	if definition("submariners.submariner.io") || definition("clusters.submariner.io") {
		d.warn("submariner", "", "Submariner is installed: it writes ServiceImports and serves clusterset.local too",
			"remove it before Hawser takes over, or give Hawser another domain and set crds: keep")
	}
	if d.configMapValue(kubeSystem, "cilium-config", "clustermesh-enable-mcs-api") == "true" {
		d.warn("cilium-mcs-api", "", "Cilium ClusterMesh implements the Multi-Cluster Services API here too",
			"switch clustermesh.mcsapi off in Cilium")
	}
	if definition(crdGoogle) {
		d.warn("gke-mcs", "", "Multi-cluster Services of GKE are installed: they serve clusterset.local too",
			"switch them off for the fleet, or give Hawser another domain")
	}
	if (definition(crdImports) || definition(crdExports)) && !definition(crdNodes) && c.CRDs != schema.KeepCRDs {
		d.warn("mcs-crds-exist", "crds", "ServiceImports or ServiceExports are defined by other software, and Hawser "+
			"would replace the definitions",
			"set crds: keep if that software needs its own version")
	}
}
