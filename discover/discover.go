// Package discover derives a cluster's topology entry from its objects: the prefixes of
// pods and Services, the cluster's DNS, and the nodes that can be gateways. It does no
// I/O; kubeclient reads the objects.
package discover

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
	"hawser.dev/hawser/schema/fabric"
)

// Confidence is the reliability of a discovered value.
type Confidence string

// Confidences from the best to the least; empty if the value is unknown.
const (
	// Certain values come from the component of the cluster that decides them.
	Certain Confidence = "certain"
	// Likely values come from the cluster's setup, or usually follow from its objects.
	Likely Confidence = "likely"
	// Guess values must be checked by the user.
	Guess Confidence = "guess"
)

// Fact is one discovered property of a cluster.
type Fact struct {
	Value      string     `json:"value,omitempty"` // empty if unknown
	Confidence Confidence `json:"confidence,omitempty"`
	From       string     `json:"from,omitempty"` // the object or flag it was read from
}

// Prefixes are the discovered pod or Service prefixes of a cluster.
type Prefixes struct {
	CIDRs      []netip.Prefix `json:"cidrs,omitempty"` // empty if unknown
	Confidence Confidence     `json:"confidence,omitempty"`
	From       string         `json:"from,omitempty"`
}

// Gateway is a node that can be a gateway.
type Gateway struct {
	Node string `json:"node"`
	// Endpoints are the addresses at which other clusters may reach the node.
	Endpoints []netip.Addr `json:"endpoints,omitempty"`
	// External reports whether the endpoints are external addresses from the cloud.
	External   bool       `json:"-"`
	Confidence Confidence `json:"confidence,omitempty"` // of the endpoints
	From       string     `json:"from,omitempty"`
	Zone       string     `json:"zone,omitempty"`
	// ControlPlane nodes become gateways only if no other node can.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// Selected reports whether a new topology starts with this gateway.
	Selected bool `json:"selected,omitempty"`
}

// Cluster is the discovered description of one cluster.
type Cluster struct {
	Name         string    `json:"name"` // in the topology
	Context      string    `json:"context,omitempty"`
	Version      string    `json:"version,omitempty"` // of the API server
	CNI          Fact      `json:"cni,omitzero"`
	KubeProxy    Fact      `json:"kubeProxy,omitzero"` // its mode, or none
	PodCIDRs     Prefixes  `json:"podCIDRs,omitzero"`
	ServiceCIDRs Prefixes  `json:"serviceCIDRs,omitzero"`
	DNS          Fact      `json:"dns,omitzero"` // a value of clusters[].dns
	Gateways     []Gateway `json:"gateways,omitempty"`
	// Findings list what the user must decide or know. An error is a required value
	// that is unknown.
	Findings diag.List `json:"findings,omitempty"`
}

// Analyze returns the description of a cluster that follows from its objects. name is
// the cluster's name in the topology.
func Analyze(name, contextName string, o Objects) Cluster {
	d := &analysis{Objects: o, Cluster: Cluster{Name: name, Context: contextName, Version: sanitize(o.Version)}}
	d.warnUnreadable()
	d.findCNI()
	d.findPodCIDRs()
	d.findServiceCIDRs()
	d.findKubeProxy()
	d.findDNS()
	d.findGateways()
	return d.Cluster
}

// analysis is the state of one Analyze or Preflight call.
type analysis struct {
	Objects
	Cluster
	ownIPAM bool // the CNI assigns pod addresses that Nodes and the controller manager do not show
}

func (d *analysis) warn(code, field, summary, hint string) {
	d.add(diag.Warning, code, field, summary, hint)
}

func (d *analysis) fail(code, field, summary, hint string) {
	d.add(diag.Error, code, field, summary, hint)
}

func (d *analysis) add(severity diag.Severity, code, field, summary, hint string) {
	path := "clusters[" + d.Name + "]"
	if field != "" {
		path += "." + field
	}
	d.Findings = append(d.Findings, diag.Diagnostic{Severity: severity, Code: code, Path: path, Summary: summary,
		Hint: hint})
}

// warnUnreadable adds one warning for each resource that could not be read.
func (d *analysis) warnUnreadable() {
	var resources []string
	names, reasons := map[string][]string{}, map[string]string{}
	for _, r := range d.Unreadable {
		resource, name, isNamed := strings.Cut(r.What, " ")
		if reasons[resource] == "" {
			resources, reasons[resource] = append(resources, resource), sanitize(r.Reason)
		}
		if isNamed {
			names[resource] = append(names[resource], name)
		}
	}
	for _, resource := range resources {
		subject := strings.TrimSpace(resource + " " + firstNames(names[resource]))
		d.warn("not-read", "", "cannot read "+subject+": "+reasons[resource],
			"everything else was examined; with it the result may be more complete")
	}
}

// Incomplete reports whether a value that a topology requires is unknown.
func (c *Cluster) Incomplete() bool { return c.Findings.HasErrors() }

// NameOf returns a cluster name for a kubeconfig context. It knows the context names of
// EKS, GKE and kubeadm. The result is empty if the context has no usable character.
func NameOf(contextName string) string {
	name := contextName
	if strings.HasPrefix(name, "arn:") {
		name = name[strings.LastIndexByte(name, '/')+1:]
	}
	if parts := strings.SplitN(name, "_", 4); len(parts) == 4 && parts[0] == "gke" {
		name = parts[3]
	}
	if at := strings.LastIndexByte(name, '@'); at >= 0 && at < len(name)-1 {
		name = name[at+1:]
	}
	name = strings.Map(func(r rune) rune {
		if r = unicode.ToLower(r); fabric.IsLabelRune(r) {
			return r
		}
		return '-'
	}, strings.TrimSuffix(name, ".eksctl.io"))
	name = name[:min(len(name), fabric.MaxLabel)]
	return strings.Trim(name, "-")
}

// sanitize returns text of a cluster as one line of printable characters, at most maxSanitized
// long. The result is safe to print and to write into a file as a comment.
func sanitize(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "?"))
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxSanitized {
		return string(runes[:maxSanitized]) + "..."
	}
	return text
}

const maxSanitized = 300 // characters

// prefixes parses prefixes separated by commas or spaces. It skips invalid ones.
func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		for _, isNamed := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
			p, err := netip.ParsePrefix(strings.TrimSpace(isNamed))
			if err == nil && !slices.Contains(out, p.Masked()) {
				out = append(out, p.Masked())
			}
		}
	}
	return out
}

// supernet returns, for each address family, the smallest prefix that contains all its
// prefixes in list.
func supernet(list []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, v4 := range []bool{true, false} {
		var super netip.Prefix
		for _, p := range list {
			switch {
			case p.Addr().Is4() != v4:
			case !super.IsValid():
				super = p
			default:
				super = netip.PrefixFrom(super.Addr(), min(super.Bits(), p.Bits())).Masked()
				for !super.Contains(p.Addr()) {
					super = netip.PrefixFrom(super.Addr(), super.Bits()-1).Masked()
				}
			}
		}
		if super.IsValid() {
			out = append(out, super)
		}
	}
	return out
}

// outermost returns the prefixes that no larger prefix of list contains, because a topology
// lists only the larger ones. Unlike cidr.Outermost it keeps their order: the first family is the
// cluster's preferred family.
func outermost(list []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for i, p := range list {
		contained := func(other netip.Prefix) bool { return other.Bits() < p.Bits() && other.Overlaps(p) }
		if !slices.ContainsFunc(list, contained) && !slices.Contains(list[:i], p) {
			out = append(out, p)
		}
	}
	return out
}

// outside returns the prefixes of list that overlap no prefix of known.
func outside(list, known []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		if !slices.ContainsFunc(known, p.Overlaps) {
			out = append(out, p)
		}
	}
	return out
}

// firstNames sorts names, and joins the first maxNamed of them.
func firstNames(names []string) string {
	slices.Sort(names)
	return humanize.FirstN(names, maxNamed)
}

const maxNamed = 3

// findDNS chooses the value of clusters[].dns.
func (d *analysis) findDNS() {
	cache := d.object("ConfigMap", kubeSystem, "node-local-dns") != nil || d.daemonSet("node-local-dns") != nil
	core := d.configMapValue(kubeSystem, "coredns", "Corefile")
	custom := d.object("ConfigMap", kubeSystem, "coredns-custom") != nil
	imports := regexp.MustCompile(`(?m)^\s*import\s+\S*custom/\S*\.server\s*$`).MatchString(core)
	switch {
	case d.object("Network.config.openshift.io", "", "cluster") != nil:
		d.DNS = Fact{Value: fabric.DNSNone, Confidence: Certain, From: "OpenShift, whose DNS operator owns the configuration"}
		d.warn("openshift-dns", "dns", "OpenShift's DNS is configured by its DNS operator, not by Hawser",
			"have the DNS operator forward the domain, and set dns.address: "+compatibility)
	case core != "" && imports && custom:
		d.DNS = Fact{Value: fabric.DNSImport, Confidence: Certain,
			From: "ConfigMap kube-system/coredns-custom, which the Corefile imports"}
	case core != "" && cache:
		d.DNS = Fact{Value: fabric.DNSNodeLocal, Confidence: Certain, From: "ConfigMap kube-system/coredns and NodeLocal DNSCache"}
	case core != "":
		d.DNS = Fact{Value: fabric.DNSCoreDNS, Confidence: Certain, From: "ConfigMap kube-system/coredns"}
	case d.object("Deployment.apps", kubeSystem, "kube-dns") != nil:
		d.DNS = Fact{Value: fabric.DNSStubZone, Confidence: Certain, From: "Deployment kube-system/kube-dns"}
	case d.object("ConfigMap", kubeSystem, "kube-dns") != nil:
		d.DNS = Fact{Value: fabric.DNSStubZone, Confidence: Likely, From: "ConfigMap kube-system/kube-dns"}
	case slices.ContainsFunc(d.Unreadable, func(r Unreadable) bool { return strings.HasPrefix(r.What, "configmaps") }):
		d.warn("dns-unknown", "dns", "the ConfigMaps that show which DNS the cluster runs cannot be read",
			"choose dns with the help of docs/kubernetes.md")
	default:
		d.DNS = Fact{Value: fabric.DNSNone, Confidence: Guess, From: "neither ConfigMap kube-system/coredns nor kube-dns exists"}
		d.warn("dns-unknown", "dns", "Hawser cannot configure the cluster's DNS",
			"forward the domain to the agents yourself: docs/kubernetes.md")
	}
	if core != "" && imports && !custom {
		d.warn("coredns-managed", "dns", "the Corefile imports ConfigMap coredns-custom, which does not exist; the "+
			"distribution may overwrite the Corefile itself",
			"create ConfigMap kube-system/coredns-custom, and set dns: coredns-custom")
	}
	if cache && d.DNS.Value != fabric.DNSNodeLocal && d.DNS.Value != "" {
		d.warn("cache-not-configured", "dns", "pods ask NodeLocal DNSCache, which Hawser does not configure with dns: "+
			d.DNS.Value,
			"give the cache a server block for the domain: docs/kubernetes.md")
	}
	_, otherBlocks, _ := corefile.SplitBlock(core)
	if strings.Contains(otherBlocks, "clusterset.local") || regexp.MustCompile(`(?m)^\s*multicluster\b`).MatchString(otherBlocks) {
		d.warn("domain-conflict", "dns", "the Corefile of ConfigMap kube-system/coredns serves clusterset.local already",
			"remove it there, choose another domain, or set dns: none")
	}
}
