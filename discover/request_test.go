package discover

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/load"
)

// otherRecipient is the age recipient of another discarded identity.
const otherRecipient = "age1lr68929mj5ruklx8rh9mlp6z4cjtesjcqcdpfm6wwmhm8g20ndcqv40250"

// members is a topology that a request joins.
const members = `apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: demo}
spec:
  clusters:
  - name: g1
    podCIDRs: [10.7.0.0/16]
    serviceCIDRs: [10.77.0.0/16]
    recipient: ` + recipient + `
    gateways: [{name: a, node: g1-a, endpoints: [203.0.113.1]}]
`

// goodRequest is a request without errors.
const goodRequest = `apiVersion: hawser.dev/v1alpha1
kind: JoinRequest
clusterset: demo
cluster:
  name: fra
  podCIDRs: [10.8.0.0/16]
  serviceCIDRs: [10.78.0.0/16]
  recipient: ` + otherRecipient + `
  gateways:
  - name: fra-a
    node: fra-1
    endpoints: [203.0.113.11, node:ExternalIP]
`

func memberSet(tb testing.TB) *schema.ClusterSet {
	tb.Helper()
	set, _, list := load.Topology("clusterset.yaml", []byte(members))
	if list.HasErrors() {
		tb.Fatal(list)
	}
	return set
}

// TestReadRequest changes one text of a good request. A request comes from the owner of another
// cluster, who may be hostile.
func TestReadRequest(t *testing.T) {
	t.Parallel()
	set := memberSet(t)
	for _, test := range []struct{ name, old, new, want string }{
		{"good", "", "", ""},
		{"own file of another kind", "kind: JoinRequest", "kind: ClusterSet", `r.yaml:2:7: error: kind: "ClusterSet" is not JoinRequest`},
		{"unknown field", "  name: fra\n", "  name: fra\n  owners: [mallory]\n", `r.yaml:6:3: error: cluster.owners: unknown key "owners"`},
		{"driver", "  name: fra\n", "  name: fra\n  tunnel: {driver: vxlan}\n", `r.yaml:6:3: error: cluster.tunnel: unknown key "tunnel"`},
		{"spec", "cluster:\n", "spec: {decommission: true}\ncluster:\n", `r.yaml:4:1: error: spec: unknown key "spec"`},
		{"key of a gateway", "    node: fra-1\n", "    node: fra-1\n    publicKey: AAAA\n", `r.yaml:12:5: error: cluster.gateways[fra-a].publicKey: unknown key "publicKey"`},
		{"other clusterset", "clusterset: demo", "clusterset: prod", `r.yaml:3:13: error: clusterset: the request is for clusterset "prod", and this one is demo`},
		{"no clusterset", "clusterset: demo\n", "", `r.yaml:1:1: error: clusterset: is missing`},
		{"name of a member", "name: fra\n", "name: g1\n", `r.yaml:5:9: error: cluster.name: the topology already has a cluster g1`},
		{"name that is a path", "name: fra\n", "name: ../x\n", `r.yaml:5:9: error: cluster.name: "../x" is not a DNS label`},
		{"no name", "  name: fra\n", "", `r.yaml:5:3: error: cluster.name: is missing`},
		{"terminal escape in a name", "name: fra\n", `name: "fra\e[2J"` + "\n", `r.yaml:5:9: error: cluster.name: "fra\x1b[2J" is not a DNS label`},
		{"raw escape", "name: fra\n", "name: fra\x1b[2J\n", `r.yaml:5:12: error: byte 0x1b is not allowed in a YAML text`},
		{"YAML in a name", "name: fra\n", `name: "fra\n  globalnet: never"` + "\n", `r.yaml:5:9: error: cluster.name: "fra\n  globalnet: never" is not a DNS label`},
		{"YAML in a node", "node: fra-1\n", `node: "fra-1, x: [y"` + "\n", `r.yaml:11:11: error: cluster.gateways[fra-a].node: "fra-1, x: [y" is not a DNS name`},
		{"YAML in an endpoint", "203.0.113.11,", `"203.0.113.11] # ",`, `r.yaml:12:17: error: cluster.gateways[fra-a].endpoints[0]: "203.0.113.11] # " is neither an address nor dns:<name>`},
		{"YAML in dns", "  recipient:", `  dns: "none\n  crds: keep"` + "\n  recipient:", `r.yaml:8:8: error: cluster.dns: "none\n  crds: keep" is not one of auto, coredns, node-local, coredns-custom, kube-dns, none`},
		{"recipient of a member", otherRecipient, recipient, `r.yaml:8:14: error: cluster.recipient: cluster g1 has the same recipient: each could decrypt the keys of the other`},
		{"no recipient", "  recipient: " + otherRecipient + "\n", "", `r.yaml:5:3: error: cluster.recipient: is missing`},
		{"identity instead of recipient", otherRecipient, "AGE-SECRET-KEY-1X", `r.yaml:8:14: error: cluster.recipient: this is an identity, which is secret, and not its recipient`},
		{"endpoint of a member", "203.0.113.11,", "203.0.113.1,", `r.yaml:12:17: error: cluster.gateways[fra-a].endpoints[0]: 203.0.113.1 with port 51820 is the endpoint of another gateway`},
		{"prefix with a member's endpoint", "10.8.0.0/16", "203.0.112.0/23", `r.yaml:6:14: error: cluster.podCIDRs[0]: clusters[g1].gateways[a].endpoints[0]: 203.0.113.1 is inside clusters[fra].podCIDRs[0] 203.0.112.0/23` + "\n" +
			`r.yaml:12:17: error: cluster.gateways[fra-a].endpoints[0]: 203.0.113.11 is inside clusters[fra].podCIDRs[0] 203.0.112.0/23`},
		{"every address", "10.8.0.0/16", "0.0.0.0/0", `r.yaml:6:14: error: cluster.podCIDRs[0]: 0.0.0.0/0 is every address that there is`},
		{"half of all addresses", "10.8.0.0/16", "128.0.0.0/1", `r.yaml:6:14: error: cluster.podCIDRs[0]: dns.address: 169.254.73.53 is inside clusters[fra].podCIDRs[0] 128.0.0.0/1` + "\n" +
			`r.yaml:6:14: error: cluster.podCIDRs[0]: clusters[g1].gateways[a].endpoints[0]: 203.0.113.1 is inside clusters[fra].podCIDRs[0] 128.0.0.0/1` + "\n" +
			`r.yaml:6:14: error: cluster.podCIDRs[0]: 128.0.0.0/1 holds addresses of 169.254.0.0/16, which are reserved (link-local)` + "\n" +
			`r.yaml:12:17: error: cluster.gateways[fra-a].endpoints[0]: 203.0.113.11 is inside clusters[fra].podCIDRs[0] 128.0.0.0/1`},
		{"global addresses", "10.8.0.0/16", "242.9.0.0/16", `r.yaml:6:14: error: cluster.podCIDRs[0]: 242.9.0.0/16 overlaps globalnet.cidr 242.0.0.0/8`},
		{"overlap of its own", "10.78.0.0/16", "10.8.9.0/24", `r.yaml:7:18: error: cluster.serviceCIDRs[0]: 10.8.9.0/24 overlaps clusters[fra].podCIDRs[0] 10.8.0.0/16`},
		{"alias", "[10.78.0.0/16]", "&a [10.78.0.0/16]", `r.yaml:7:17: error: cluster.serviceCIDRs: anchors and aliases are not supported`},
		{"second document", "node:ExternalIP]\n", "node:ExternalIP]\n---\na: b\n", `r.yaml:14:1: error: a second YAML document begins here`},
		{"repeated key", "  name: fra\n", "  name: fra\n  name: ams\n", `r.yaml:6:3: error: cluster.name: the key occurs twice`},
		{"too large", "apiVersion", strings.Repeat("#\n", MaxRequest/2) + "apiVersion", `r.yaml: error: the join request is larger than 64 KiB`},
		{"empty", goodRequest, "", `r.yaml: error: the file holds no document`},
		{"a list", goodRequest, "[]", "r.yaml:1:1: error: want a mapping, have a list\nr.yaml:1:1: error: apiVersion: is missing\n" +
			"r.yaml:1:1: error: clusterset: is missing\nr.yaml:1:1: error: kind: is missing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, list := ReadRequest("r.yaml", []byte(strings.Replace(goodRequest, test.old, test.new, 1)), set)
			var have []string
			for _, d := range list {
				have = append(have, d.Error())
			}
			if got := strings.Join(have, "\n"); got != test.want {
				t.Errorf("have %s\nwant %s", got, test.want)
			}
			if test.want == "" {
				checkEntry(t, set, c)
			}
		})
	}
}

// TestRequestLists checks that long lists are bounded: the request by its size, gateways by their
// number.
func TestRequestLists(t *testing.T) {
	t.Parallel()
	var prefixes, gateways []string
	for i := range 2000 {
		prefixes = append(prefixes, fmt.Sprintf("11.%d.%d.0/24", i/256, i%256))
	}
	for i := range 33 {
		gateways = append(gateways, fmt.Sprintf("  - {name: a%d, node: a%d}\n", i, i))
	}
	set := memberSet(t)
	c, list := ReadRequest("r.yaml", []byte(strings.Replace(goodRequest, "10.8.0.0/16", strings.Join(prefixes, ", "), 1)), set)
	if list.HasErrors() || len(c.PodCIDRs) != len(prefixes) {
		t.Errorf("%d prefixes of %d: %v", len(c.PodCIDRs), len(prefixes), list)
	}
	checkEntry(t, set, c)
	_, list = ReadRequest("r.yaml", []byte(goodRequest+strings.Join(gateways, "")), set)
	if want := "r.yaml:10:3: error: cluster.gateways: 34 gateways, a cluster can have 32"; len(list) != 1 || list[0].Error() != want {
		t.Errorf("have %v, want %s", list, want)
	}
}

// TestRequestYAML checks that a discovered cluster is the same as its request and as its entry.
func TestRequestYAML(t *testing.T) {
	t.Parallel()
	found := Analyze("fra", "admin@fra", readObjects(t, "testdata/kubeadm-flannel.yaml"))
	text := found.RequestYAML("demo", otherRecipient)
	set := memberSet(t)
	c, list := ReadRequest("r.yaml", []byte(text), set)
	if list.HasErrors() {
		t.Fatalf("%v\n%s", list, text)
	}
	checkEntry(t, set, c)
	direct, err := Insert([]byte(members), found.ClusterYAML(otherRecipient))
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := load.Topology("clusterset.yaml", direct)
	entry, err := Insert([]byte(members), EntryYAML(c))
	if err != nil {
		t.Fatal(err)
	}
	if have, _, _ := load.Topology("clusterset.yaml", entry); !reflect.DeepEqual(have, want) {
		t.Errorf("have %s\nwant %s", entry, direct)
	}
}

// FuzzReadRequest checks that no request makes ReadRequest panic, and that an accepted one adds
// exactly its cluster to the topology.
func FuzzReadRequest(f *testing.F) {
	for _, text := range []string{goodRequest, strings.Replace(goodRequest, "fra\n", "\"y\"\n", 1),
		strings.Replace(goodRequest, "203.0.113.11", `"dns:gw.example.org:700", "[2001:db8::1]:500", "2001:db8::2", seen`, 1),
		strings.Replace(goodRequest, "10.8.0.0/16", `10.8.0.0/16, "fd00:8::/48", "::2:0/112"`, 1),
		strings.Replace(goodRequest, "fra-1", `"0x10"`, 1), strings.Replace(goodRequest, "fra-1", "&a fra-1 # TODO(hawser)", 1)} {
		f.Add([]byte(text))
	}
	set := memberSet(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, list := ReadRequest("r.yaml", raw, set)
		var out bytes.Buffer
		if err := diag.Print(&out, list, map[string][]byte{"r.yaml": raw}, false); err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsFunc(out.Bytes(), func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }) {
			t.Errorf("control characters in %q", out.String())
		}
		if !list.HasErrors() {
			checkEntry(t, set, c)
		}
	})
}

// checkEntry checks that the entry of a cluster adds this cluster to the topology, and nothing else.
func checkEntry(t *testing.T, set *schema.ClusterSet, c schema.Cluster) {
	t.Helper()
	text, err := Insert([]byte(members), EntryYAML(c))
	if err != nil {
		t.Fatal(err)
	}
	now, _, list := load.Topology("clusterset.yaml", text)
	if list.HasErrors() {
		t.Fatalf("%v\n%s", list, text)
	}
	want := *set
	want.Spec.Clusters = append([]schema.Cluster{set.Spec.Clusters[0]}, c)
	schema.Default(&want)
	if !reflect.DeepEqual(*now, want) {
		t.Errorf("have %+v\nwant %+v\n%s", *now, want, text)
	}
	if bytes.ContainsAny(text[len(members):], "#&*!") {
		t.Errorf("the request wrote %s", text)
	}
}
