package ownership

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/schema/tags"
)

// owned is a topology in which two clusters and some namespaces have owners.
const owned = `apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: demo}
spec:
  trust:
    commits: allowed_signers
    owners: [platform@example.org]
    namespaces:
    - {names: [shop], owners: [shop@example.org]}
    - {names: [shop, "team-*"], owners: [teams@example.org]}
  clusters:
  - name: g1
    owners: [g1@example.org]
    podCIDRs: [10.1.0.0/16]
    serviceCIDRs: [10.101.0.0/16]
    recipient: age1lr68929mj5ruklx8rh9mlp6z4cjtesjcqcdpfm6wwmhm8g20ndcqv40250
    gateways:
    - {name: a, node: n1, endpoints: [192.0.2.1]}
  - name: g2
    podCIDRs: [10.2.0.0/16]
    serviceCIDRs: [10.102.0.0/16]
    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n
    gateways:
    - {name: a, node: n1, endpoints: [192.0.2.2]}
  dynamicExports: {namespaces: [team-a, play]}
  exports:
  - {name: web, namespace: shop, clusters: [g1], ports: [{port: 80}]}
  - {name: db, namespace: bank, clusters: [g1, g2], ports: [{port: 5432}]}
`

// versionOf returns the Version of a topology.
func versionOf(t *testing.T, text string) Version {
	t.Helper()
	set, src, list := load.Decode("clusterset.yaml", []byte(text))
	if list.HasErrors() {
		t.Fatal(list)
	}
	return Version{set, src}
}

// TestDifferences checks that Diff lists the changes between two versions. Each change has its
// line, and its owners in the old version.
func TestDifferences(t *testing.T) {
	t.Parallel()
	const g1, shop = "g1@example.org", "shop@example.org teams@example.org"
	tests := []struct {
		name string
		edit []string // pairs of old and new
		want []string
	}{
		{"nothing", nil, nil},
		{"comments, quotes and a default", []string{"name: g1\n", "name: 'g1' # mine\n    dns: auto\n    egress: []\n"}, nil},
		{"another order of clusters and exports", []string{
			"  exports:\n", "  exports:\n  - {namespace: bank, name: db, clusters: [g1, g2], ports: [{port: 5432}]}\n",
			"  - {name: db, namespace: bank, clusters: [g1, g2], ports: [{port: 5432}]}\n", ""}, nil},
		{"a gateway", []string{"endpoints: [192.0.2.1]", "endpoints: [192.0.2.9]"},
			[]string{"18 changes cluster g1: gateways[a].endpoints: " + g1}},
		{"one more gateway", []string{"endpoints: [192.0.2.1]}\n", "endpoints: [192.0.2.1]}\n    - {name: b, node: n2}\n"},
			[]string{"19 adds cluster g1: gateways[b]: " + g1}},
		{"a gateway of a cluster without owners", []string{"endpoints: [192.0.2.2]", "endpoints: [192.0.2.9]"},
			[]string{"24 changes cluster g2: gateways[a].endpoints: "}},
		{"an endpoint near another cluster's", []string{"endpoints: [192.0.2.1]", "endpoints: ['192.0.2.2:7000']"}, []string{
			"18 changes cluster g1: gateways[a].endpoints: " + g1,
			"18 changes cluster g1: endpoint 192.0.2.2, which another cluster has: ",
			"24 changes cluster g2: endpoint 192.0.2.2, which another cluster has: "}},
		{"prefixes", []string{"[10.1.0.0/16]", "[10.1.0.0/16, 10.2.0.0/24]"}, []string{"14 changes cluster g1: podCIDRs: "}},
		{"the own globalnet, driver and owners", []string{"owners: [g1@example.org]", "owners: [g1@example.org, me]\n    globalnet: always\n    tunnel: {driver: vxlan, mtu: 1300}"},
			[]string{"14 changes cluster g1: globalnet: ", "13 changes cluster g1: owners: ", "15 changes cluster g1: tunnel.driver: ", "15 changes cluster g1: tunnel.mtu: " + g1}},
		{"a cluster's name", []string{"- name: g2", "- name: g3"}, []string{"19 removes cluster g2: ", "19 adds cluster g3: "}},
		{"an export", []string{"port: 80", "port: 81"}, []string{"27 changes export shop/web: ports: " + shop}},
		{"an export's namespace", []string{"namespace: shop", "namespace: bank"}, []string{"27 adds export bank/web: ", "27 removes export shop/web: " + shop}},
		{"a new export", []string{"  exports:\n", "  exports:\n  - {name: web, namespace: team-b, clusters: [g2], ports: [{port: 1}]}\n"},
			[]string{"27 adds export team-b/web: teams@example.org"}},
		{"an allow list", []string{"clusters: [g1, g2], ports", "clusters: [g1, g2], allow: {clusters: [g1]}, ports"}, []string{"28 adds export bank/db: allow: "}},
		{"a value that becomes the default", []string{"    recipient: age1lr", "    dns: none\n    recipient: age1lr"},
			[]string{"16 changes cluster g1: dns: " + g1}},
		{"dynamic exports of a team", []string{"[team-a, play]", "[team-a, play, 'team-*']"},
			[]string{"25 changes dynamic exports of namespace team-*: teams@example.org"}},
		{"dynamic exports of a team and others", []string{"[team-a, play]", "[team-a, play, 'team*']"},
			[]string{"25 changes dynamic exports of namespace team*: "}},
		{"dynamic exports for some clusters", []string{"{namespaces: [team-a, play]}", "\n  - namespaces: [play, team-a]\n  - {namespaces: [team-a], clusters: [g2]}"},
			[]string{"26 changes dynamic exports of namespace team-a: teams@example.org"}},
		{"no dynamic exports", []string{"  dynamicExports: {namespaces: [team-a, play]}\n", ""}, []string{"25 removes dynamicExports: "}},
		{"who owns a namespace", []string{"[shop, \"team-*\"]", "[shop, bank]"}, []string{"9 changes trust.namespaces: "}},
		{"something of all", []string{"  dynamicExports", "  domain: example.org\n  dynamicExports"}, []string{"25 changes domain: "}},
		{"the name of all", []string{"{name: demo}", "{name: other}"}, []string{"3 changes metadata.name: "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := owned
			for i := 0; i+1 < len(tt.edit); i += 2 {
				if !strings.Contains(text, tt.edit[i]) {
					t.Fatalf("the topology has no %q", tt.edit[i])
				}
				at := strings.LastIndex(text, tt.edit[i])
				text = text[:at] + tt.edit[i+1] + text[at+len(tt.edit[i]):]
			}
			found, err := Diff(versionOf(t, owned), versionOf(t, text))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range found {
				got = append(got, fmt.Sprintf("%d %s %s: %s", d.Pos.Line, d.Action, d.Item, strings.Join(d.Owners, " ")))
			}
			if d := gocmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// TestDifferencesFollowVersions checks that users who add themselves as owners own nothing in the
// old version.
func TestDifferencesFollowVersions(t *testing.T) {
	t.Parallel()
	text := strings.Replace(owned, "  - name: g2\n", "  - name: g2\n    owners: [eve@example.org]\n", 1)
	text = strings.Replace(text, "endpoints: [192.0.2.2]", "endpoints: [192.0.2.3]", 1)
	found, err := Diff(versionOf(t, owned), versionOf(t, text))
	if err != nil || len(found) != 2 {
		t.Fatalf("got %v, %v", found, err)
	}
	for _, d := range found {
		if len(d.Owners) > 0 {
			t.Errorf("%s is owned by %v", d.Item, d.Owners)
		}
	}
}

// TestDifferencesOfNames checks that Diff fails for missing and duplicate names.
func TestDifferencesOfNames(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string][2]string{
		"cluster twice":           {"- name: g2", "- name: g1"},
		"export twice":            {"{name: db, namespace: bank", "{name: web, namespace: shop"},
		"a name that is a path":   {"{name: db, namespace: bank", "{name: 'web].ports', namespace: shop"},
		"a namespace with a name": {"{name: db, namespace: bank", "{name: web, namespace: shop/x"},
		"a cluster without":       {"- name: g2", "- name: ''"},
	} {
		if _, err := Diff(versionOf(t, owned), versionOf(t, strings.Replace(owned, edit[0], edit[1], 1))); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestOwnedFields contains, for each field of the topology, whether owners of its item may change
// it. A new field needs an entry here. See ADR 17.
func TestOwnedFields(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"": "apiVersion, kind, metadata.name, spec.clusters[].globalCIDR, spec.clusters[].globalIPv6CIDR, spec.clusters[].globalnet, spec.clusters[].name, " +
			"spec.clusters[].owners, spec.clusters[].podCIDRs, spec.clusters[].serviceCIDRs, spec.clusters[].tunnel.driver",
		"cluster": "spec.clusters[].crds, spec.clusters[].dns, spec.clusters[].egress[].ips, spec.clusters[].egress[].name, spec.clusters[].egress[].namespace, " +
			"spec.clusters[].egress[].podSelector, spec.clusters[].gateways[].allowNodeLabels, spec.clusters[].gateways[].count, spec.clusters[].gateways[].endpoints, spec.clusters[].gateways[].ikePublicKey, " +
			"spec.clusters[].gateways[].name, spec.clusters[].gateways[].node, spec.clusters[].gateways[].nodeSelector, spec.clusters[].gateways[].port, spec.clusters[].gateways[].publicKey, spec.clusters[].nodeNetwork, " +
			"spec.clusters[].recipient, spec.clusters[].tunnel.keepalive, spec.clusters[].tunnel.mtu, spec.clusters[].tunnel.port",
		"namespace": "spec.exports[].allow, spec.exports[].annotations, spec.exports[].balance.order, spec.exports[].balance.policy, " +
			"spec.exports[].balance.weights, spec.exports[].clusters, spec.exports[].hostnames, spec.exports[].labels, spec.exports[].name, " +
			"spec.exports[].namespace, spec.exports[].ports, spec.exports[].sessionAffinity, spec.exports[].type",
	}
	got := map[string]string{}
	var walk func(typ reflect.Type, path, owner string)
	walk = func(typ reflect.Type, path, owner string) {
		fields := tags.Fields(typ)
		slices.SortFunc(fields, func(a, b tags.Field) int { return strings.Compare(a.Name, b.Name) })
		for _, f := range fields {
			at, of, owner := strings.TrimPrefix(path+"."+f.Name, "."), typ.Field(f.Index).Type, cmp.Or(f.Owner, owner)
			switch {
			case path == "spec" && f.Name != "clusters" && owner == "": // clusterset settings
			case of.Kind() == reflect.Slice && tags.Naming(of.Elem()) != nil:
				walk(of.Elem(), at+"[]", owner)
			case of.Kind() == reflect.Struct && !tags.IsText(reflect.New(of).Elem()) && of != schema.HostnamesType:
				walk(of, at, owner)
			default:
				got[owner] = strings.TrimPrefix(got[owner]+", "+at, ", ")
			}
		}
	}
	walk(reflect.TypeFor[schema.ClusterSet](), "", "")
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestDifferencesSeeEverything checks that Diff lists a change of any field. An unlisted change
// would need no owner.
func TestDifferencesSeeEverything(t *testing.T) {
	t.Parallel()
	full := func() (*schema.ClusterSet, map[string]func()) {
		set, changes := &schema.ClusterSet{}, map[string]func(){}
		fillAll(t, reflect.ValueOf(set).Elem(), "", changes)
		return set, changes
	}
	have, paths := full()
	src := document.New("x", nil, reflect.TypeFor[schema.ClusterSet]())
	if len(paths) < 80 {
		t.Fatalf("only %d values", len(paths))
	}
	for path := range paths {
		want, changes := full()
		if found, err := Diff(Version{have, src}, Version{want, src}); err != nil || len(found) > 0 {
			t.Fatalf("equal ones differ: %v, %v", found, err)
		}
		changes[path]()
		if found, err := Diff(Version{have, src}, Version{want, src}); err != nil || len(found) == 0 {
			t.Errorf("%s: no difference, %v", path, err)
		}
	}
}

// fillAll sets every field. It records a function that changes the field, by path.
func fillAll(t *testing.T, v reflect.Value, path string, changes map[string]func()) {
	t.Helper()
	set := func(first, second any) {
		v.Set(reflect.ValueOf(first).Convert(v.Type()))
		changes[path] = func() { v.Set(reflect.ValueOf(second).Convert(v.Type())) }
	}
	switch v.Interface().(type) {
	case netip.Prefix:
		set(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("11.0.0.0/8"))
		return
	case netip.Addr:
		set(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"))
		return
	}
	switch v.Kind() {
	case reflect.String:
		set("one", "two")
	case reflect.Bool:
		set(true, false)
	case reflect.Int, reflect.Int64:
		set(1, 2)
	case reflect.Float64:
		set(1.5, 2.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillAll(t, v.Elem(), path, changes)
		changes[path+" (none)"] = func() { v.SetZero() }
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillAll(t, v.Index(0), path+"[0]", changes)
		changes[path+" (none)"] = func() { v.SetZero() }
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		item := reflect.New(v.Type().Elem()).Elem()
		fillAll(t, item, path, map[string]func(){})
		v.SetMapIndex(reflect.ValueOf("key"), item)
		changes[path] = func() { v.SetMapIndex(reflect.ValueOf("other"), item) }
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && !(v.Type() == schema.DynamicType && f.Name == "Alone") && !(v.Type() == schema.HostnamesType && f.Name == "Count") { // second form of a field
				fillAll(t, v.Field(i), path+"."+f.Name, changes)
			}
		}
	default:
		t.Fatalf("%s: nothing fills a %s", path, v.Kind())
	}
}
