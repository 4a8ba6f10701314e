package discover

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// compatibility is the page that explains the findings about CNIs.
const compatibility = "docs/compatibility.md"

// findCNI finds the cluster's CNI and warns of settings that Hawser depends on.
func (d *analysis) findCNI() {
	from := func(kind, name string) string { return kind + " " + sanitize(name) }
	openshift := d.object("Network.config.openshift.io", "", "cluster")
	switch {
	case openshift != nil:
		d.CNI = Fact{Value: cmp.Or(stringAt(openshift, "status", "networkType"), stringAt(openshift, "spec", "networkType")),
			Confidence: Certain,
			From:       "Network.config.openshift.io cluster"}
		d.CNI.Value = sanitize(d.CNI.Value)
		d.ownIPAM = true
		d.checkOVNKubernetes()
	case d.daemonSet("aws-node") != nil:
		d.CNI, d.ownIPAM = Fact{Value: "AWS VPC CNI", Confidence: Certain, From: "DaemonSet aws-node"}, true
		d.warn("aws-vpc-cni", "", "pods with addresses of secondary network interfaces cannot reach other clusters",
			"read \"AWS VPC CNI\" in "+compatibility+" before you continue")
	case d.daemonSet("anetd") != nil:
		d.CNI = Fact{Value: "GKE Dataplane V2 (Cilium)", Confidence: Certain, From: "DaemonSet anetd"}
		d.warn("gke-dataplane-v2", "", "it is unknown whether pod packets pass the host's netfilter with Dataplane V2",
			"read \"GKE\" in "+compatibility+", and test with one pod first")
	case d.configMapValue(kubeSystem, "cilium-config", "ipam") != "" ||
		d.daemonSet("cilium") != nil:
		d.checkCilium()
	case len(d.all("Subnet.kubeovn.io")) > 0:
		d.CNI, d.ownIPAM = Fact{Value: "Kube-OVN", Confidence: Certain, From: "Subnets of kubeovn.io"}, true
		for _, s := range d.all("Subnet.kubeovn.io") {
			name := sanitize(s.GetName())
			switch vpc, underlay := kubeOVNSubnet(&s); {
			case vpc != "":
				d.warn("kube-ovn-vpc", "podCIDRs", fmt.Sprintf("pods of Subnet %s are in VPC %s, and cannot reach other clusters",
					name, sanitize(vpc)),
					"use Subnets of the default VPC ("+defaultVPC+") for pods that need other clusters: "+compatibility)
			case underlay:
				d.warn("kube-ovn-underlay", "podCIDRs", fmt.Sprintf("pods of the underlay Subnet %s cannot reach other clusters",
					name),
					"use overlay Subnets for pods that need other clusters: "+compatibility)
			}
		}
	case d.daemonSet("ovnkube-node") != nil:
		d.CNI = Fact{Value: "OVN-Kubernetes", Confidence: Certain, From: "DaemonSet ovnkube-node"}
		d.checkOVNKubernetes()
	case d.daemonSet("calico-node", "canal") != nil:
		set := d.daemonSet("calico-node", "canal")
		d.CNI = Fact{Value: "Calico", Confidence: Certain, From: from("DaemonSet", set.GetName())}
		if set.GetName() == "canal" {
			d.CNI.Value = "Canal (Flannel and Calico)"
		} else {
			d.ownIPAM = len(d.all("IPPool.crd.projectcalico.org")) > 0
		}
		d.checkCalico()
	case d.daemonSet("antrea-agent") != nil:
		d.CNI = Fact{Value: "Antrea", Confidence: Certain, From: "DaemonSet antrea-agent"}
		mode := stringAt(parseYAML(d.configMapValue(kubeSystem, "antrea-config", "antrea-agent.conf")), "trafficEncapMode")
		if mode == "noEncap" || mode == "networkPolicyOnly" {
			d.warn("antrea-no-encap", "", "with trafficEncapMode "+mode+" packets of pods may bypass the host's netfilter, "+
				"which translates clusterset IPs",
				"use trafficEncapMode encap: "+compatibility)
		}
	case d.daemonSet("azure-cns") != nil:
		d.CNI, d.ownIPAM = Fact{Value: "Azure CNI", Confidence: Certain, From: "DaemonSet azure-cns"}, true
	case d.daemonSet("kube-flannel-ds", "kube-flannel") != nil:
		d.CNI = Fact{Value: "Flannel", Confidence: Certain, From: from("DaemonSet",
			d.daemonSet("kube-flannel-ds", "kube-flannel").GetName())}
	case d.daemonSet("kindnet") != nil:
		d.CNI = Fact{Value: "kindnet", Confidence: Certain, From: "DaemonSet kindnet"}
	case d.daemonSet("kube-router") != nil:
		d.CNI = Fact{Value: "kube-router", Confidence: Certain, From: "DaemonSet kube-router"}
	case d.daemonSet("weave-net") != nil:
		d.CNI, d.ownIPAM = Fact{Value: "Weave Net", Confidence: Certain, From: "DaemonSet weave-net"}, true
	default:
		for _, n := range d.all("Node") {
			if n.GetAnnotations()["flannel.alpha.coreos.com/backend-type"] != "" {
				d.CNI = Fact{Value: "Flannel", Confidence: Likely, From: "annotations of Node " + sanitize(n.GetName())}
				return
			}
		}
	}
}

func (d *analysis) checkCilium() {
	config := d.object("ConfigMap", kubeSystem, "cilium-config")
	if config == nil {
		d.CNI, d.ownIPAM = Fact{Value: "Cilium", Confidence: Certain, From: "DaemonSet cilium"}, true
		return
	}
	d.CNI = Fact{Value: "Cilium", Confidence: Certain, From: "ConfigMap kube-system/cilium-config"}
	ipam := stringAt(config, "data", "ipam")
	d.ownIPAM = ipam != "kubernetes"
	enabled := func(key string) bool { return stringAt(config, "data", key) == "true" }
	replaced := enabled("kube-proxy-replacement") || stringAt(config, "data", "kube-proxy-replacement") == "strict"
	if ipam == "eni" {
		d.warn("cilium-eni", "", "pods with addresses of secondary network interfaces cannot reach other clusters",
			"read \"Cilium\" in "+compatibility+" before you continue")
		return
	}
	if !replaced || !enabled("enable-bpf-masquerade") {
		return
	}
	if !enabled("enable-host-legacy-routing") {
		d.warn("cilium-host-routing", "", "packets of pods bypass the host's netfilter, which translates clusterset IPs",
			"set bpf.hostLegacyRouting=true in Cilium's Helm chart: "+compatibility)
	}
	if stringAt(config, "data", "devices") == "" {
		d.warn("cilium-devices", "", "Cilium masquerades on Hawser's links too: other clusters see the address of a pod's node, and egress rules do not apply",
			"set devices in Cilium's Helm chart to the interfaces of the nodes: "+compatibility)
	}
}

const defaultVPC = "ovn-cluster"

// kubeOVNSubnet returns the VPC of a Subnet, empty for the default VPC, and whether the
// Subnet is an underlay.
func kubeOVNSubnet(s *unstructured.Unstructured) (vpc string, underlay bool) {
	if vpc = stringAt(s, "spec", "vpc"); vpc == defaultVPC {
		vpc = ""
	}
	return vpc, stringAt(s, "spec", "vlan") != "" && !isTrue(s, "spec", "logicalGateway")
}

func (d *analysis) checkOVNKubernetes() {
	network := d.object("Network.operator.openshift.io", "", "cluster")
	if network == nil && !strings.HasPrefix(d.CNI.Value, "OVN") {
		return
	}
	if network == nil || !isTrue(network, "spec", "defaultNetwork", "ovnKubernetesConfig", "gatewayConfig",
		"routingViaHost") {
		d.warn("ovn-kubernetes-shared", "", "in gateway mode shared packets of pods bypass the host, which translates "+
			"clusterset IPs",
			"set gateway mode local (in OpenShift routingViaHost: true): "+compatibility)
	}
}

func (d *analysis) checkCalico() {
	for _, f := range d.all("FelixConfiguration.crd.projectcalico.org") {
		if isTrue(&f, "spec", "bpfEnabled") {
			d.warn("calico-ebpf", "", "with Calico's eBPF dataplane packets may bypass the host's netfilter, which "+
				"translates clusterset IPs",
				"use the iptables or nftables dataplane: "+compatibility)
			return
		}
	}
}

// findKubeProxy finds the mode of kube-proxy. Hawser does not need kube-proxy, but other findings
// depend on the mode.
func (d *analysis) findKubeProxy() {
	if d.configMapValue(kubeSystem, "cilium-config", "kube-proxy-replacement") == "true" && d.daemonSet("kube-proxy") == nil {
		d.KubeProxy = Fact{Value: "none", Confidence: Certain,
			From: "kube-proxy-replacement in ConfigMap kube-system/cilium-config"}
		return
	}
	if text := d.configMapValue(kubeSystem, "kube-proxy", "config.conf"); text != "" {
		// An empty mode is iptables on Linux.
		mode := cmp.Or(sanitize(stringAt(parseYAML(text), "mode")), "iptables")
		d.KubeProxy = Fact{Value: mode, Confidence: Likely, From: "ConfigMap kube-system/kube-proxy"}
	}
}
