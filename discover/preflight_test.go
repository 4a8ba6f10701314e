package discover

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
)

// TestPreflight compares clusters with correct and incorrect topologies. A star marks an error in
// the golden files.
func TestPreflight(t *testing.T) {
	t.Parallel()
	cidrs := func(text string) []netip.Prefix { return prefixes(text) }
	valid := func() schema.Cluster {
		return schema.Cluster{Name: "c", PodCIDRs: cidrs("10.244.0.0/16"), ServiceCIDRs: cidrs("10.96.0.0/12"),
			DNS: "coredns", CRDs: "install",
			Gateways: []schema.Gateway{{Name: "a", Node: "w1"}}}
	}
	const namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: hawser-system, labels: " +
		"{pod-security.kubernetes.io/enforce: %}}}"
	definition := func(name string) string {
		return "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: " + name + "}}"
	}
	cache := func(corefile string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: node-local-dns, namespace: kube-system}, data: {Corefile: %q}}", corefile)
	}
	for name, test := range map[string]struct {
		file    string
		change  func(*schema.Cluster)
		objects []string // more of them
		version string
		want    string
	}{
		"all well":         {want: ""},
		"wider is well":    {change: func(c *schema.Cluster) { c.PodCIDRs = cidrs("10.0.0.0/8") }, want: ""},
		"an older version": {version: "v1.29.9-eks-1", want: "version-unsupported*"},
		"no version":       {version: "oops", want: "version-unknown"},
		"other pods": {change: func(c *schema.Cluster) { c.PodCIDRs = cidrs("10.7.0.0/16") },
			want: "pod-cidrs-differ*"},
		"a part of pods": {change: func(c *schema.Cluster) { c.PodCIDRs = cidrs("10.244.0.0/17") },
			want: "pod-cidrs-differ*"},
		"no services":  {change: func(c *schema.Cluster) { c.ServiceCIDRs = nil }, want: "service-cidrs-differ*"},
		"no such node": {change: func(c *schema.Cluster) { c.Gateways[0].Node = "w9" }, want: "gateway-node-missing*"},
		"an endpoint of another host": {change: func(c *schema.Cluster) { c.Gateways[0].Endpoints = []string{"203.0.113.77"} },
			want: "endpoint-not-on-node"},
		"an endpoint by name":  {change: func(c *schema.Cluster) { c.Gateways[0].Endpoints = []string{"dns:gw.example.com"} }, want: ""},
		"discovered endpoints": {change: func(c *schema.Cluster) { c.Gateways[0].Endpoints = []string{"node:InternalIP"} }, want: ""},
		"a node in a pool": {objects: []string{"{apiVersion: v1, kind: Node, metadata: {name: x}, status: {addresses: " +
			"[{type: InternalIP, address: 242.1.2.3}]}}"}, want: "node-in-pool*"},
		"a node not ready": {file: "kubeadm-calico", change: func(c *schema.Cluster) {
			c.PodCIDRs, c.DNS, c.Gateways[0].Node = cidrs("192.168.0.0/16"), "node-local", "w4"
		}, want: "calico-ebpf gateway-node-not-ready node-cidrs-unused"},
		"another dns": {file: "kubeadm-calico", change: func(c *schema.Cluster) { c.PodCIDRs = cidrs("192.168.0.0/16") },
			want: "calico-ebpf dns-differs node-cidrs-unused"},
		"a guess": {file: "dual", change: func(c *schema.Cluster) {
			c.ServiceCIDRs, c.Gateways[0].Node = cidrs("fd00:10:77::/112,10.77.0.0/16"), "n1"
		}, want: "pod-cidrs-differ"},
		"a domain is taken": {file: "antrea", change: func(c *schema.Cluster) { c.PodCIDRs = cidrs("10.30.0.0/16") },
			want: "antrea-no-encap domain-conflict"},
		"taken, dns none": {file: "antrea", change: func(c *schema.Cluster) {
			c.PodCIDRs, c.DNS = cidrs("10.30.0.0/16"),
				"none"
		}, want: "antrea-no-encap"},
		"openshift": {file: "openshift", change: func(c *schema.Cluster) {
			c.PodCIDRs, c.ServiceCIDRs = cidrs("10.128.0.0/14"), cidrs("172.30.0.0/16")
			c.DNS, c.Gateways[0].Node = "none", "worker-0"
		}, want: "openshift-scc ovn-kubernetes-shared"},
		"pod security":  {objects: []string{strings.Replace(namespace, "%", "restricted", 1)}, want: "pod-security"},
		"our namespace": {objects: []string{strings.Replace(namespace, "%", "privileged", 1)}, want: ""},
		"a namespace goes": {objects: []string{"{apiVersion: v1, kind: Namespace, metadata: {name: hawser-system, " +
			`deletionTimestamp: "2026-01-02T03:04:05Z"}}`}, want: "namespace-terminating*"},
		"submariner": {objects: []string{definition("submariners.submariner.io"), definition(crdImports)},
			want: "mcs-crds-exist submariner"},
		"google's own": {objects: []string{definition(crdGoogle)}, want: "gke-mcs"},
		"taken in the cache": {file: "kubeadm-calico", objects: []string{cache("clusterset.local:53 {\n}")}, change: func(c *schema.Cluster) {
			c.PodCIDRs, c.DNS = cidrs("192.168.0.0/16"), "node-local"
		}, want: "calico-ebpf domain-conflict node-cidrs-unused"},
		"a domain contains the cluster's": {file: "kubeadm-calico", objects: []string{
			cache("x.clusterset.local:53 {\n forward . __PILLAR__CLUSTER__DNS__\n}")}, change: func(c *schema.Cluster) {
			c.PodCIDRs, c.DNS = cidrs("192.168.0.0/16"), "node-local"
		}, want: "calico-ebpf domain-reserved node-cidrs-unused"},
		"ours in the cache": {file: "kubeadm-calico", objects: []string{cache("cluster.local:53 {\n}")}, change: func(c *schema.Cluster) {
			c.PodCIDRs, c.DNS = cidrs("192.168.0.0/16"), "node-local"
		}, want: "calico-ebpf node-cidrs-unused"},
		"kept definitions": {objects: []string{definition(crdImports)}, change: func(c *schema.Cluster) { c.CRDs = "keep" },
			want: ""},
		"our definitions": {objects: []string{definition(crdImports), definition(crdNodes)}, want: ""},
		"cilium's own": {objects: []string{"{apiVersion: v1, kind: ConfigMap, metadata: {name: cilium-config, " +
			"namespace: kube-system}, data: {clustermesh-enable-mcs-api: 'true'}}"}, want: "cilium-mcs-api"},
		"nothing is read": {file: "forbidden", change: func(c *schema.Cluster) { c.PodCIDRs = cidrs("192.168.0.0/16") },
			want: "not-read not-read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := test.file
			if file == "" {
				file = "kubeadm-flannel"
			}
			o := readObjects(t, "testdata/"+file+".yaml")
			if test.version != "" {
				o.Version = test.version
			}
			for _, text := range test.objects {
				var object map[string]any
				if err := yaml.Unmarshal([]byte(text), &object); err != nil {
					t.Fatal(err)
				}
				o.Items = slices.Insert(o.Items, 0, unstructured.Unstructured{Object: object}) // before the objects of the file
			}
			c := valid()
			if test.change != nil {
				test.change(&c)
			}
			var got []string
			for _, f := range Preflight("ctx", o, Expected{Cluster: &c, Pools: cidrs("242.0.0.0/8"),
				Domains: []string{"clusterset.local"}}) {
				if f.Summary == "" || f.Hint == "" || !strings.HasPrefix(f.Path, "clusters[c]") {
					t.Errorf("not said in full: %+v", f)
				}
				code := f.Code
				if f.Severity == diag.Error {
					code += "*"
				}
				got = append(got, code)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != test.want {
				t.Errorf("%q, want %q", strings.Join(got, " "), test.want)
			}
		})
	}
}
