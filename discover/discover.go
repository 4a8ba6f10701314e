// Package discover finds in the objects of a cluster what a topology says of it: the
// prefixes of pods and Services, how its own DNS is reached, nodes that can be
// gateways. It is pure; kubeclient reads the objects.
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

// Confidence says how much a value can be relied on.
type Confidence string

// From the best to the least; empty = nothing is known.
const (
	// Certain is what the part of the cluster that decides says of itself.
	Certain Confidence = "certain"
	// Likely is what the cluster was set up with, or what usually follows from what is there.
	Likely Confidence = "likely"
	// Guess has to be looked at by somebody who knows.
	Guess Confidence = "guess"
)

// Fact is one word that is known of a cluster.
type Fact struct {
	Value string     `json:"value,omitempty"` // empty: not known
	Sure  Confidence `json:"sure,omitempty"`
	From  string     `json:"from,omitempty"` // where it is known from
}

// Prefixes are prefixes that are known of a cluster.
type Prefixes struct {
	CIDRs []netip.Prefix `json:"cidrs,omitempty"` // none: not known
	Sure  Confidence     `json:"sure,omitempty"`
	From  string         `json:"from,omitempty"`
}

// Gateway is a node that can hold tunnels.
type Gateway struct {
	Node string `json:"node"`
	// Endpoints are the addresses of the node at which other clusters may reach it.
	Endpoints []netip.Addr `json:"endpoints,omitempty"`
	// External says that they are those that the cloud gave to the node for outside.
	External bool       `json:"-"`
	Sure     Confidence `json:"sure,omitempty"` // of the endpoints
	From     string     `json:"from,omitempty"`
	Zone     string     `json:"zone,omitempty"`
	// ControlPlane nodes are used when there is nothing else.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// Selected says that it is one of those that a new topology begins with.
	Selected bool `json:"use,omitempty"`
}

// Cluster is what was found of one cluster.
type Cluster struct {
	Name         string    `json:"name"` // in the topology
	Context      string    `json:"context,omitempty"`
	Version      string    `json:"version,omitempty"` // of the API server
	CNI          Fact      `json:"cni,omitzero"`
	KubeProxy    Fact      `json:"kubeProxy,omitzero"` // its mode; none
	PodCIDRs     Prefixes  `json:"podCIDRs,omitzero"`
	ServiceCIDRs Prefixes  `json:"serviceCIDRs,omitzero"`
	DNS          Fact      `json:"dns,omitzero"` // a value of clusters[].dns
	Gateways     []Gateway `json:"gateways,omitempty"`
	// Findings are what somebody has to decide or to know: an error is a value that is
	// needed and not known.
	Findings diag.List `json:"findings,omitempty"`
}

// Analyze says what a cluster's objects mean. Name is the cluster's in the topology.
func Analyze(name, contextName string, o Objects) Cluster {
	d := &analysis{Objects: o, Cluster: Cluster{Name: name, Context: contextName, Version: plain(o.Version)}}
	d.refused()
	d.network()
	d.pods()
	d.services()
	d.proxy()
	d.dns()
	d.gateways()
	return d.Cluster
}

// analysis is a cluster on the way.
type analysis struct {
	Objects
	Cluster
	ownIPAM bool // the network gives pods addresses that Nodes and the controller manager do not know
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

// refused names what could not be read, once for each resource.
func (d *analysis) refused() {
	var resources []string
	names, why := map[string][]string{}, map[string]string{}
	for _, r := range d.Refused {
		resource, name, one := strings.Cut(r.What, " ")
		if why[resource] == "" {
			resources, why[resource] = append(resources, resource), plain(r.Why)
		}
		if one {
			names[resource] = append(names[resource], name)
		}
	}
	for _, resource := range resources {
		what := strings.TrimSpace(resource + " " + some(names[resource]))
		d.warn("not-read", "", "cannot read "+what+": "+why[resource],
			"everything else was examined; with it the result may be more complete")
	}
}

// Incomplete reports whether something that a topology needs is not known.
func (c *Cluster) Incomplete() bool { return c.Findings.HasErrors() }

// NameOf makes a cluster's name from that of a context of a kubeconfig; empty when
// nothing of it can be in a name. It knows what EKS, GKE and kubeadm call contexts.
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

// plain keeps what a cluster says from being more than text where it is shown, or
// written into a file as a comment.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "?"))
	text = strings.Join(strings.Fields(text), " ")
	if long := []rune(text); len(long) > maxPlain {
		return string(long[:maxPlain]) + "..."
	}
	return text
}

const maxPlain = 300 // characters

// prefixes reads what is written as one or several prefixes, with commas or spaces
// between them; what is none is left out.
func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		for _, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
			p, err := netip.ParsePrefix(strings.TrimSpace(one))
			if err == nil && !slices.Contains(out, p.Masked()) {
				out = append(out, p.Masked())
			}
		}
	}
	return out
}

// supernet gives for each family the smallest prefix that holds all of its prefixes.
func supernet(list []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, v4 := range []bool{true, false} {
		var all netip.Prefix
		for _, p := range list {
			switch {
			case p.Addr().Is4() != v4:
			case !all.IsValid():
				all = p
			default:
				all = netip.PrefixFrom(all.Addr(), min(all.Bits(), p.Bits())).Masked()
				for !all.Contains(p.Addr()) {
					all = netip.PrefixFrom(all.Addr(), all.Bits()-1).Masked()
				}
			}
		}
		if all.IsValid() {
			out = append(out, all)
		}
	}
	return out
}

// widest leaves out what another prefix of the list holds: a topology has the larger
// one only.
func widest(list []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for i, p := range list {
		held := func(other netip.Prefix) bool { return other.Bits() < p.Bits() && other.Overlaps(p) }
		if !slices.ContainsFunc(list, held) && !slices.Contains(list[:i], p) {
			out = append(out, p)
		}
	}
	return out
}

// outside gives the prefixes that have no part in any of others.
func outside(list, others []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		if !slices.ContainsFunc(others, p.Overlaps) {
			out = append(out, p)
		}
	}
	return out
}

// some shows the first of many names.
func some(names []string) string {
	slices.Sort(names)
	return humanize.FirstN(names, maxNamed)
}

const maxNamed = 3

// dns chooses the value of clusters[].dns.
func (d *analysis) dns() {
	cache := d.one("ConfigMap", kubeSystem, "node-local-dns") != nil || d.daemon("node-local-dns") != nil
	core := d.setting(kubeSystem, "coredns", "Corefile")
	custom := d.one("ConfigMap", kubeSystem, "coredns-custom") != nil
	imports := regexp.MustCompile(`(?m)^\s*import\s+\S*custom/\S*\.server\s*$`).MatchString(core)
	switch {
	case d.one("Network.config.openshift.io", "", "cluster") != nil:
		d.DNS = Fact{Value: fabric.DNSNone, Sure: Certain, From: "OpenShift, whose DNS operator owns the configuration"}
		d.warn("openshift-dns", "dns", "OpenShift's DNS is configured by its DNS operator, not by Hawser",
			"have the DNS operator forward the domain, and set dns.address: "+compatibility)
	case core != "" && imports && custom:
		d.DNS = Fact{Value: fabric.DNSImport, Sure: Certain,
			From: "ConfigMap kube-system/coredns-custom, which the Corefile imports"}
	case core != "" && cache:
		d.DNS = Fact{Value: fabric.DNSNodeLocal, Sure: Certain, From: "ConfigMap kube-system/coredns and NodeLocal DNSCache"}
	case core != "":
		d.DNS = Fact{Value: fabric.DNSCoreDNS, Sure: Certain, From: "ConfigMap kube-system/coredns"}
	case d.one("Deployment.apps", kubeSystem, "kube-dns") != nil:
		d.DNS = Fact{Value: fabric.DNSStubZone, Sure: Certain, From: "Deployment kube-system/kube-dns"}
	case d.one("ConfigMap", kubeSystem, "kube-dns") != nil:
		d.DNS = Fact{Value: fabric.DNSStubZone, Sure: Likely, From: "ConfigMap kube-system/kube-dns"}
	case slices.ContainsFunc(d.Refused, func(r Unreadable) bool { return strings.HasPrefix(r.What, "configmaps") }):
		d.warn("dns-unknown", "dns", "the ConfigMaps that show which DNS the cluster runs cannot be read",
			"choose dns with the help of docs/kubernetes.md")
	default:
		d.DNS = Fact{Value: fabric.DNSNone, Sure: Guess, From: "neither ConfigMap kube-system/coredns nor kube-dns exists"}
		d.warn("dns-unknown", "dns", "the cluster's DNS is not one that Hawser can configure",
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
	_, others, _ := corefile.SplitBlock(core)
	if strings.Contains(others, "clusterset.local") || regexp.MustCompile(`(?m)^\s*multicluster\b`).MatchString(others) {
		d.warn("domain-taken", "dns", "the Corefile of ConfigMap kube-system/coredns serves clusterset.local already",
			"remove it there, choose another domain, or set dns: none")
	}
}
