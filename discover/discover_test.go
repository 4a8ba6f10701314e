package discover

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema/load"
)

var update = flag.Bool("update", false, "rewrite the expected files")

// recipient is the age recipient of a discarded identity.
const recipient = "age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n"

// readObjects returns the objects of a file. A document of kind Test has the fields of Objects
// that are not Kubernetes objects.
func readObjects(t *testing.T, file string) Objects {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out Objects
	for document := range strings.SplitSeq(string(raw), "---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, document)
		}
		if o["kind"] != "Test" {
			out.Items = append(out.Items, unstructured.Unstructured{Object: o})
			continue
		}
		var test struct {
			Version        string
			Refused        []Unreadable
			ServiceRefusal string
		}
		if err := yaml.Unmarshal([]byte(document), &test); err != nil {
			t.Fatal(err)
		}
		out.Version, out.Unreadable = test.Version, append(out.Unreadable, test.Refused...)
		out.ServiceRanges = append(out.ServiceRanges, ServiceRange(test.ServiceRefusal)...)
	}
	return out
}

// TestAnalyze reads files with the objects of clusters of all kinds, in the shape of real
// clusters. The golden files hold the topology entry and the findings. Validation of the
// entry finds errors on its marked lines alone.
func TestAnalyze(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Analyze(name, "admin@"+name, readObjects(t, file))
			raw, err := yaml.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			got := c.ClusterYAML(recipient) + "---\n" + string(raw)
			want := strings.TrimSuffix(file, ".yaml") + ".want"
			if *update {
				if err := os.WriteFile(want, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			have, err := os.ReadFile(want)
			if err != nil {
				t.Fatal(err)
			}
			if string(have) != got {
				t.Errorf("%s differs (go test ./discover -update rewrites it):\n%s", want, got)
			}
			checkTopology(t, Topology("demo", []Cluster{c}, map[string]string{name: recipient}), c)
		})
	}
}

// checkTopology loads a topology. It must hold exactly the clusters that were found, and
// errors only on marked lines.
func checkTopology(t *testing.T, text string, c Cluster) {
	t.Helper()
	set, _, list := load.Topology("clusterset.yaml", []byte(text))
	lines := strings.Split(text, "\n")
	for _, found := range list {
		if found.Severity == diag.Error && (!c.Incomplete() || !strings.Contains(lines[found.Pos.Line-1], Todo)) {
			t.Errorf("the topology is wrong on a line without a mark: %v\n%s", found, text)
		}
	}
	if list.HasErrors() != c.Incomplete() {
		t.Errorf("errors: %t, incomplete: %t\n%s", list.HasErrors(), c.Incomplete(), text)
	}
	if list.HasErrors() {
		return
	}
	if len(set.Spec.Clusters) != 1 || set.Spec.Clusters[0].Recipient != recipient ||
		fmt.Sprint(set.Spec.Clusters[0].PodCIDRs) != fmt.Sprint(c.PodCIDRs.CIDRs) ||
		fmt.Sprint(set.Spec.Clusters[0].ServiceCIDRs) != fmt.Sprint(c.ServiceCIDRs.CIDRs) {
		t.Errorf("the topology's clusters differ from the discovered clusters: %+v", set.Spec.Clusters)
	}
}

// TestHostile checks that texts from a cluster cannot leave their value or comment.
func TestHostile(t *testing.T) {
	t.Parallel()
	c := Analyze("hostile", "c", readObjects(t, "testdata/hostile.yaml"))
	text := Topology("demo", []Cluster{c}, map[string]string{"hostile": recipient})
	for _, line := range strings.Split(text, "\n") {
		before, _, _ := strings.Cut(line, "#")
		for _, bad := range []string{"globalnet", "evil", "publicKey", "0.0.0.0"} {
			if strings.Contains(before, bad) {
				t.Errorf("the cluster wrote %q", line)
			}
		}
	}
	raw, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsRune(raw, '\x1b') || strings.Contains(string(raw), `\e`) || strings.ContainsAny(c.Version, "\n\x1b") {
		t.Errorf("control characters were kept: %s", raw)
	}
}

func TestNameOf(t *testing.T) {
	t.Parallel()
	for context, want := range map[string]string{
		"fra":                    "fra",
		"admin@berlin":           "berlin",
		"kubernetes-admin@AMS_1": "ams-1",
		"arn:aws:eks:eu-west-1:123456789012:cluster/Shop.Prod": "shop-prod",
		"gke_my-project_europe-west3-a_my_cluster":             "my-cluster",
		"joe@fra.eu-west-1.eksctl.io":                          "fra-eu-west-1",
		"default/api-crc-testing:6443/kubeadmin":               "default-api-crc-testing-6443-kubeadmin",
		"@":                                                    "",
		"日本":                                                   "",
		strings.Repeat("x", 62) + "-y":                         strings.Repeat("x", 62),
	} {
		if got := NameOf(context); got != want {
			t.Errorf("%s: %q, want %q", context, got, want)
		}
	}
}

// TestNames checks that names which YAML could parse as another type stay names.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"no", "1", "1e3", "0x10", "null", "2001-01-01", "a", strings.Repeat("x", 63)} {
		c := Analyze(name, name, readObjects(t, "testdata/kubeadm-flannel.yaml"))
		for i := range c.Gateways {
			c.Gateways[i].Node = name
		}
		c.Gateways = c.Gateways[:1]
		set, _, list := load.Topology("f", []byte(Topology(name, []Cluster{c}, map[string]string{name: recipient})))
		if list.HasErrors() || set.Metadata.Name != name || set.Spec.Clusters[0].Name != name ||
			set.Spec.Clusters[0].Gateways[0].Node != name {
			t.Errorf("%s: %v", name, list)
		}
	}
}

func TestCovering(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                      "",
		"10.7.1.0/24":                           "10.7.1.0/24",
		"10.7.1.0/24,10.7.2.0/24":               "10.7.0.0/22",
		"10.7.0.0/24,10.7.255.0/24,fd00:1::/64": "10.7.0.0/16, fd00:1::/64",
		"10.0.0.0/8,192.168.1.0/24":             "0.0.0.0/0",
		"10.7.0.0/24 10.7.0.0/16":               "10.7.0.0/16",
	} {
		if got := humanize.Join(supernet(prefixes(in)), ", "); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestWidest(t *testing.T) {
	t.Parallel()
	list := prefixes("10.96.0.0/16,10.96.8.0/24,fd00::/112,10.0.0.0/8,fd00::/120,10.97.0.0/16,192.168.0.0/16")
	if got := humanize.Join(outermost(append(list, list...)), ", "); got != "fd00::/112, 10.0.0.0/8, 192.168.0.0/16" {
		t.Error(got)
	}
}

func TestServiceRange(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"the provided IP (192.0.2.1) is not in the valid range. The range of valid IPs is 10.96.0.0/12": "10.96.0.0/12",
		"... The range of valid IPs is fd00:96::/112, spec.x: no":                                       "fd00:96::/112",
		"services is forbidden: User \"x\" cannot create":                                               "",
		"The range of valid IPs is everything":                                                          "",
	} {
		if got := humanize.Join(ServiceRange(in), ", "); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// TestInsert adds a cluster to topologies that are written in different ways.
func TestInsert(t *testing.T) {
	t.Parallel()
	c := Cluster{Name: "new", PodCIDRs: Prefixes{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")},
		Confidence: Certain, From: "IPPool x"},
		ServiceCIDRs: Prefixes{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Confidence: Certain,
			From: "ServiceCIDR x"},
		DNS: Fact{Value: "coredns", Confidence: Certain, From: "x"},
		Gateways: []Gateway{{Node: "w1", Selected: true, Endpoints: []netip.Addr{netip.MustParseAddr("203.0.113.9")},
			Confidence: Likely, From: "x"}}}
	const head = "apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata: {name: demo}\nspec:\n"
	item := func(by string) string {
		return by + "- name: old # kept\n" + by + "  recipient: " + recipient + "\n" + by + "  gateways:\n" + by + "  - " +
			"name: a\n" + by + "    node: n1\n"
	}
	for name, test := range map[string]struct{ before, after string }{
		"at the end":             {head + "  clusters:\n" + item("  "), ""},
		"without a last newline": {head + "  clusters:\n" + strings.TrimSuffix(item("  "), "\n"), ""},
		"indented":               {head + "  clusters:\n" + item("      "), "  # about exports\n  exports: []\n"},
		"with what follows":      {head + "  clusters:\n" + item("  "), "\n  # about exports\n\n  exports: []\n"},
		"with a comment of the old": {head + "  clusters:\n" + item("  ") + "\n    # more of the old\n",
			"  dns: {ttl: 5s}\n"},
		"flow items": {head + "  clusters:\n  - {name: old, recipient: " + recipient + ",\n     gateways: " +
			"[{name: a, node: n1}]}\n", "  exports: []\n"},
		"spec of many lines": {head + "  clusters:\n  -\n    name: old\n    recipient: >-\n      " + recipient + "\n    " +
			"gateways:\n    - {name: a, node: n1}\n", "  exports: []\n"},
	} {
		for _, ends := range []string{"\n", "\r\n"} {
			t.Run(name+fmt.Sprintf("%q", ends), func(t *testing.T) {
				t.Parallel()
				before, after := strings.ReplaceAll(test.before, "\n", ends), strings.ReplaceAll(test.after, "\n", ends)
				got, err := Insert([]byte(before+after), c.ClusterYAML(recipient))
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.HasPrefix(got, []byte(before)) || !bytes.HasSuffix(got, []byte(after)) {
					t.Errorf("the text around was changed:\n%s", got)
				}
				if ends == "\r\n" && bytes.Count(got, []byte("\n")) != bytes.Count(got, []byte("\r\n")) {
					t.Errorf("the ends of lines are mixed: %q", got)
				}
				set, _, list := load.Topology("f", got)
				if list.HasErrors() || len(set.Spec.Clusters) != 2 || set.Spec.Clusters[0].Name != "old" ||
					set.Spec.Clusters[1].Name != "new" {
					t.Errorf("%v\n%s", list, got)
				}
			})
		}
	}
	for want, text := range map[string]string{
		"there is no spec in it":                      "kind: ClusterSet\n",
		"there is no clusters in it":                  head + "  dns: {}\n",
		"line 5: clusters is not a list with one":     head + "  clusters: []\n",
		"line 5: clusters is not a list with one or ": head + "  clusters: [{name: old}]\n",
		"read topology: yaml: ":                       "{",
	} {
		if _, err := Insert([]byte(text), c.ClusterYAML(recipient)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// FuzzInsert checks that Insert does not change the text around the new entry.
func FuzzInsert(f *testing.F) {
	f.Add("spec:\n  clusters:\n  - name: a\n  exports: []\n")
	f.Add("spec: {clusters: [{name: a}]}")
	f.Add("spec:\n clusters:\n -\n  name: |\n   a\n\n  \n#x")
	f.Fuzz(func(t *testing.T, text string) {
		const entry = "- name: inserted-by-this\n"
		got, err := Insert([]byte(text), entry)
		if err != nil {
			return
		}
		at := strings.Index(string(got), "- name: inserted-by-this")
		if strings.Contains(text, "inserted-by-this") {
			return
		}
		if at < 0 || len(got) <= len(text) {
			t.Fatalf("nothing was inserted into %q: %q", text, got)
		}
		if line := strings.LastIndexByte(string(got)[:at], '\n') + 1; !strings.HasPrefix(text,
			strings.TrimRight(string(got)[:line], "\r\n")) {
			t.Fatalf("the text before was changed: %q became %q", text, got)
		}
	})
}
