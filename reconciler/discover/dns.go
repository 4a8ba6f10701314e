package discover

import (
	"regexp"
	"slices"
	"strings"

	"hawser.dev/hawser/nodeagent/objects/corefile"
	"hawser.dev/hawser/schema/fabric"
)

// dns chooses the value of clusters[].dns.
func (d *decision) dns() {
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
	case slices.ContainsFunc(d.Refused, func(r Refused) bool { return strings.HasPrefix(r.What, "configmaps") }):
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
	_, others, _ := corefile.Block(core)
	if strings.Contains(others, "clusterset.local") || regexp.MustCompile(`(?m)^\s*multicluster\b`).MatchString(others) {
		d.warn("domain-taken", "dns", "the Corefile of ConfigMap kube-system/coredns serves clusterset.local already",
			"remove it there, choose another domain, or set dns: none")
	}
}
