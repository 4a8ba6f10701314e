package discover

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/internal/humanize"
)

// evidence has the prefixes from one source.
type evidence struct {
	from       string
	confidence Confidence
	cidrs      []netip.Prefix
	partial    bool // cidrs are parts of the wanted prefixes, such as the pod prefixes of Nodes
}

// choosePrefixes returns the prefixes of the first candidate that is not empty. It adds a finding for
// each later candidate with a prefix outside of them.
func (d *analysis) choosePrefixes(field, code string, candidates []evidence) Prefixes {
	candidates = slices.DeleteFunc(candidates, func(c evidence) bool { return len(c.cidrs) == 0 })
	if len(candidates) == 0 {
		d.fail(code+"-unknown", field, "no object of the cluster shows its "+field, "write "+field+" into the topology")
		return Prefixes{}
	}
	best := candidates[0]
	if best.partial {
		best.cidrs = supernet(best.cidrs)
	}
	best.cidrs = outermost(best.cidrs)
	for _, c := range candidates[1:] {
		if uncovered := outside(c.cidrs, best.cidrs); len(uncovered) > 0 {
			if c.partial {
				uncovered = supernet(uncovered)
			}
			d.warn(code+"-conflict", field, fmt.Sprintf("%s has %s, which is outside of %s (%s)", c.from, humanize.Join(uncovered, ", "),
				humanize.Join(best.cidrs, ", "), best.from),
				"find out which of them is in use, and correct "+field+" in the topology")
		}
	}
	if best.confidence == Guess {
		d.warn(code+"-guess", field, fmt.Sprintf("%s is a guess (%s)", humanize.Join(best.cidrs, ", "), best.from),
			"compare it with the configuration of the cluster")
	}
	return Prefixes{CIDRs: best.cidrs, Confidence: best.confidence, From: best.from}
}

// findPodCIDRs finds the pod prefixes. The CNI's own objects come first, then the flags of the
// cluster's setup, then the Nodes.
func (d *analysis) findPodCIDRs() {
	bySetup := Likely // confidence of the cluster's setup
	if d.ownIPAM {
		bySetup = Guess
	}
	candidates := d.cniPodCIDRs()
	if value, pod := d.staticPodFlag("kube-controller-manager", "--cluster-cidr"); value != "" {
		confidence := bySetup
		if !d.ownIPAM {
			confidence = Certain // Nodes get their prefixes from there
		}
		candidates = append(candidates, evidence{from: "--cluster-cidr of Pod kube-system/" + sanitize(pod), confidence: confidence,
			cidrs: prefixes(value)})
	}
	candidates = append(candidates, evidence{from: "podSubnet in " + kubeadmConfig,
		confidence: bySetup, cidrs: prefixes(stringAt(d.kubeadm(), "networking", "podSubnet"))})
	if value, from := d.nodeFlag("--cluster-cidr"); value != "" {
		candidates = append(candidates, evidence{from: sanitize(from), confidence: bySetup, cidrs: prefixes(value)})
	}
	candidates = append(candidates, evidence{from: "clusterCIDR in ConfigMap kube-system/kube-proxy", confidence: bySetup,
		cidrs: prefixes(stringAt(parseYAML(d.configMapValue(kubeSystem, "kube-proxy", "config.conf")), "clusterCIDR"))})
	var onNodes []string
	for _, n := range d.all("Node") {
		onNodes = append(onNodes, stringList(&n, "spec", "podCIDRs")...)
	}
	nodes := prefixes(onNodes...)
	if !d.ownIPAM {
		candidates = append(candidates, evidence{from: "covering prefix of spec.podCIDRs of all Nodes", confidence: Guess, cidrs: nodes,
			partial: true})
	}
	d.PodCIDRs = d.choosePrefixes("podCIDRs", "pod-cidrs", candidates)
	if uncovered := outside(nodes, d.PodCIDRs.CIDRs); d.ownIPAM && len(uncovered) > 0 && len(d.PodCIDRs.CIDRs) > 0 {
		d.warn("node-cidrs-unused", "podCIDRs", fmt.Sprintf("spec.podCIDRs of Nodes has %s, which %s does not use for pods",
			humanize.Join(supernet(uncovered), ", "), d.CNI.Value), "pass --allow-other-cluster to the first hawser apply to the cluster, "+
			"which compares them")
	}
}

// cniPodCIDRs returns the pod prefixes that the CNI's own objects name.
func (d *analysis) cniPodCIDRs() []evidence {
	var out []evidence
	if o := d.object("Network.config.openshift.io", "", "cluster"); o != nil {
		out = append(out, evidence{from: "Network.config.openshift.io cluster", confidence: Certain,
			cidrs: cidrFields(o, "status", "clusterNetwork")})
	}
	var names, pools []string
	for _, p := range d.all("IPPool.crd.projectcalico.org") {
		uses := stringList(&p, "spec", "allowedUses")
		if isTrue(&p, "spec", "disabled") || len(uses) > 0 && !slices.Contains(uses, "Workload") {
			continue
		}
		pools = append(pools, stringAt(&p, "spec", "cidr"))
		names = append(names, sanitize(p.GetName()))
	}
	out = append(out, evidence{from: "IPPool " + firstNames(names), confidence: Certain, cidrs: prefixes(pools...)})
	if config := d.object("ConfigMap", kubeSystem, "cilium-config"); config != nil &&
		stringAt(config, "data", "ipam") != "kubernetes" {
		pool := []string{stringAt(config, "data", "cluster-pool-ipv4-cidr")}
		if stringAt(config, "data", "enable-ipv6") == "true" {
			pool = append(pool, stringAt(config, "data", "cluster-pool-ipv6-cidr"))
		}
		first := evidence{from: "ConfigMap kube-system/cilium-config", confidence: Certain, cidrs: prefixes(pool...)}
		if stringAt(config, "data", "ipam") == "multi-pool" {
			var pools []string
			for _, p := range d.all("CiliumPodIPPool.cilium.io") {
				pools = slices.Concat(pools, stringList(&p, "spec", "ipv4", "cidrs"), stringList(&p, "spec", "ipv6", "cidrs"))
			}
			first = evidence{from: "CiliumPodIPPools", confidence: Certain, cidrs: prefixes(pools...)}
		}
		var nodes []string
		for _, n := range d.all("CiliumNode.cilium.io") {
			nodes = append(nodes, stringList(&n, "spec", "ipam", "podCIDRs")...)
		}
		out = append(out, first, evidence{from: "covering prefix of the podCIDRs of all CiliumNodes", confidence: Guess,
			cidrs: prefixes(nodes...), partial: true})
	}
	var subnets []string
	for _, s := range d.all("Subnet.kubeovn.io") {
		if vpc, underlay := kubeOVNSubnet(&s); s.GetName() == "join" || vpc != "" || underlay {
			continue // nodes have the addresses of join; pods of the others reach no other cluster
		}
		subnets = append(subnets, stringAt(&s, "spec", "cidrBlock"))
	}
	out = append(out, evidence{from: "Subnets of kubeovn.io", confidence: Certain, cidrs: prefixes(subnets...)})
	for _, cm := range []struct{ namespace, name string }{{"kube-flannel", "kube-flannel-cfg"},
		{kubeSystem, "kube-flannel-cfg"}, {kubeSystem, "canal-config"}} {
		net := parseYAML(d.configMapValue(cm.namespace, cm.name, "net-conf.json"))
		out = append(out, evidence{from: "ConfigMap " + cm.namespace + "/" + cm.name, confidence: Certain,
			cidrs: prefixes(stringAt(net, "Network"), stringAt(net, "IPv6Network"))})
	}
	out = append(out, evidence{from: "net_cidr in ConfigMap ovn-kubernetes/ovn-config", confidence: Certain,
		cidrs: parseOVNNet(d.configMapValue("ovn-kubernetes", "ovn-config", "net_cidr"))})
	antrea := parseYAML(d.configMapValue(kubeSystem, "antrea-config", "antrea-controller.conf"))
	return append(out, evidence{from: "ConfigMap kube-system/antrea-config", confidence: Certain,
		cidrs: prefixes(stringList(antrea, "nodeIPAM", "clusterCIDRs")...)})
}

// findServiceCIDRs finds the Service prefixes. The API server's own answer comes first.
func (d *analysis) findServiceCIDRs() {
	var candidates []evidence
	var names, objects []string
	for _, s := range d.all("ServiceCIDR.networking.k8s.io") {
		objects = append(objects, stringList(&s, "spec", "cidrs")...)
		names = append(names, sanitize(s.GetName()))
	}
	candidates = append(candidates, evidence{from: "ServiceCIDR " + firstNames(names), confidence: Certain, cidrs: prefixes(objects...)})
	if o := d.object("Network.config.openshift.io", "", "cluster"); o != nil {
		candidates = append(candidates, evidence{from: "Network.config.openshift.io cluster", confidence: Certain,
			cidrs: prefixes(stringList(o, "status", "serviceNetwork")...)})
	}
	for _, component := range []string{"kube-apiserver", "kube-controller-manager"} {
		if value, pod := d.staticPodFlag(component, "--service-cluster-ip-range"); value != "" {
			confidence := Certain
			if component == "kube-controller-manager" {
				confidence = Likely
			}
			candidates = append(candidates, evidence{from: "--service-cluster-ip-range of Pod kube-system/" + sanitize(pod), confidence: confidence,
				cidrs: prefixes(value)})
		}
	}
	candidates = append(candidates, evidence{from: "the API server, in a dry run of a Service", confidence: Certain,
		cidrs: d.ServiceRanges},
		evidence{from: "serviceSubnet in " + kubeadmConfig, confidence: Likely, cidrs: prefixes(stringAt(d.kubeadm(), "networking",
			"serviceSubnet"))})
	if value, from := d.nodeFlag("--service-cidr"); value != "" {
		candidates = append(candidates, evidence{from: sanitize(from), confidence: Likely, cidrs: prefixes(value)})
	}
	if svc := d.configMapValue("ovn-kubernetes", "ovn-config", "svc_cidr"); svc != "" {
		candidates = append(candidates, evidence{from: "svc_cidr in ConfigMap ovn-kubernetes/ovn-config", confidence: Likely,
			cidrs: prefixes(svc)})
	}
	d.ServiceCIDRs = d.choosePrefixes("serviceCIDRs", "service-cidrs", candidates)
	api := d.object("Service", "default", "kubernetes")
	if api == nil || len(d.ServiceCIDRs.CIDRs) == 0 {
		return
	}
	address, err := netip.ParseAddr(stringAt(api, "spec", "clusterIP"))
	if err == nil && !slices.ContainsFunc(d.ServiceCIDRs.CIDRs, func(p netip.Prefix) bool { return p.Contains(address) }) {
		d.warn("service-cidrs-conflict", "serviceCIDRs",
			fmt.Sprintf("the Service default/kubernetes has %s, which is outside of %s (%s)",
				address, humanize.Join(d.ServiceCIDRs.CIDRs, ", "), d.ServiceCIDRs.From), "find out which of them is in use, and correct "+
				"serviceCIDRs in the topology")
	}
}

// NeedsServiceDryRun reports whether no object shows the Service prefixes with certainty. The
// caller then sends the API server an address that it refuses.
func (o Objects) NeedsServiceDryRun() bool {
	if len(o.all("ServiceCIDR.networking.k8s.io")) > 0 || o.object("Network.config.openshift.io", "", "cluster") != nil {
		return false
	}
	value, _ := o.staticPodFlag("kube-apiserver", "--service-cluster-ip-range")
	return value == ""
}

// ServiceRange parses the Service prefixes from an API server's refusal of an address
// outside them.
func ServiceRange(refusal string) []netip.Prefix {
	_, text, _ := strings.Cut(refusal, "range of valid IPs is ")
	field, _, _ := strings.Cut(text, " ")
	return prefixes(strings.TrimRight(field, ".,;"))
}

const kubeadmConfig = "ConfigMap kube-system/kubeadm-config"

func (o Objects) kubeadm() *unstructured.Unstructured {
	return parseYAML(o.configMapValue(kubeSystem, "kubeadm-config", "ClusterConfiguration"))
}

// cidrFields returns the prefixes in the field cidr of a list of objects.
func cidrFields(o *unstructured.Unstructured, fields ...string) []netip.Prefix {
	var out []netip.Prefix
	list, _, _ := unstructured.NestedSlice(o.Object, fields...)
	for _, item := range list {
		entry, _ := item.(map[string]any)
		text, _ := entry["cidr"].(string)
		out = append(out, prefixes(text)...)
	}
	return out
}

// parseOVNNet parses prefixes that end with the prefix length of a node's part, such as
// 10.244.0.0/16/24.
func parseOVNNet(text string) []netip.Prefix {
	var out []string
	for prefix := range strings.SplitSeq(text, ",") {
		if strings.Count(prefix, "/") == 2 {
			prefix = prefix[:strings.LastIndexByte(prefix, '/')]
		}
		out = append(out, strings.TrimSpace(prefix))
	}
	return prefixes(out...)
}
