package mcs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/schema/fabric"
)

// TestWhichExportsCount checks the conditions of each ServiceExport, word by word.
func TestWhichExportsCount(t *testing.T) {
	t.Parallel()
	good := service(tcp("http", 80))
	external := &mcs.Service{Type: "ExternalName"}
	rendered := export("other", "api", 1, good)
	rendered.Rendered = true
	renderedWeb := export("shop", "web", 1, good)
	renderedWeb.Rendered = true
	tests := []struct {
		name, cluster string
		export        mcs.Export
		valid, ready  mcs.Condition
	}{
		{
			name: "dynamic", cluster: "g1", export: export("team-a", "api", 1, good),
			valid: mcs.Condition{Type: "Valid", Status: "True", Reason: "Valid", Message: "Service team-a/api can be exported"},
			ready: mcs.Condition{Type: "Ready", Status: "True", Reason: "Exported", Message: "exported from cluster g1 at 242.1."},
		},
		{
			name: "no service", cluster: "g1", export: export("team-a", "api", 1, nil),
			valid: mcs.Condition{Type: "Valid", Status: "False", Reason: "NoService", Message: "there is no Service team-a/api"},
			ready: mcs.Condition{Type: "Ready", Status: "False", Reason: "Pending", Message: "it is not valid"},
		},
		{
			name: "external name", cluster: "g1", export: export("team-a", "api", 1, external),
			valid: mcs.Condition{Type: "Valid", Status: "False", Reason: "InvalidServiceType",
				Message: "Service team-a/api is of type ExternalName, which cannot be exported: export a Service with endpoints, or resolve its externalName in each cluster"},
			ready: mcs.Condition{Type: "Ready", Status: "False", Reason: "Pending", Message: "it is not valid"},
		},
		{
			name: "namespace", cluster: "g1", export: export("other", "api", 1, good),
			valid: mcs.Condition{Type: "Valid", Status: "False", Reason: "NotAllowed",
				Message: "namespace other matches none of spec.dynamicExports.namespaces of the topology, and spec.exports does not have other/api: add it to one of them, and wait until the agents have that fabric"},
			ready: mcs.Condition{Type: "Ready", Status: "False", Reason: "Pending", Message: "it is not valid"},
		},
		{
			name: "declared", cluster: "g1", export: export("shop", "web", 1, good),
			valid: mcs.Condition{Type: "Valid", Status: "True", Reason: "Valid", Message: "Service shop/web can be exported"},
			ready: mcs.Condition{Type: "Ready", Status: "True", Reason: "Exported", Message: "exported from cluster g1"},
		},
		{
			name: "declared for others", cluster: "g3", export: export("shop", "web", 1, good),
			valid: mcs.Condition{Type: "Valid", Status: "False", Reason: "NotAllowed",
				Message: "the topology exports shop/web from other clusters only: add g3 to spec.exports[shop/web].clusters, and wait until the agents have that fabric"},
			ready: mcs.Condition{Type: "Ready", Status: "False", Reason: "Pending", Message: "it is not valid"},
		},
		{
			name: "declared by a newer fabric", cluster: "g1", export: rendered,
			valid: mcs.Condition{Type: "Valid", Status: "Unknown", Reason: "Pending",
				Message: "the agents have fabric f1, which does not export other/api from g1: they wait for the fabric with this ServiceExport, or for its deletion"},
			ready: mcs.Condition{Type: "Ready", Status: "Unknown", Reason: "Pending", Message: "it is not known to be valid"},
		},
		{
			name: "declared for the cluster by a newer fabric", cluster: "g3", export: renderedWeb,
			valid: mcs.Condition{Type: "Valid", Status: "Unknown", Reason: "Pending",
				Message: "the agents have fabric f1, which does not export shop/web from g3: they wait for the fabric with this ServiceExport, or for its deletion"},
			ready: mcs.Condition{Type: "Ready", Status: "Unknown", Reason: "Pending", Message: "it is not known to be valid"},
		},
		{
			name: "rendered and declared", cluster: "g1", export: renderedWeb,
			valid: mcs.Condition{Type: "Valid", Status: "True", Reason: "Valid", Message: "Service shop/web can be exported"},
			ready: mcs.Condition{Type: "Ready", Status: "True", Reason: "Exported", Message: "exported from cluster g1"},
		},
	}
	for _, tt := range tests {
		v := mcs.Decide(mcs.ClusterView{Fabric: sample(), Digest: "f1", Cluster: tt.cluster, Exports: []mcs.Export{tt.export}}).Exports[0]
		if v.Valid != tt.valid {
			t.Errorf("%s: Valid is %+v, want %+v", tt.name, v.Valid, tt.valid)
		}
		if !strings.HasPrefix(v.Ready.Message, tt.ready.Message) {
			t.Errorf("%s: Ready says %q, want %q", tt.name, v.Ready.Message, tt.ready.Message)
		}
		tt.ready.Message = v.Ready.Message
		if v.Ready != tt.ready {
			t.Errorf("%s: Ready is %+v, want %+v", tt.name, v.Ready, tt.ready)
		}
		if (v.Offer != nil) != (v.Valid.Status == "True") {
			t.Errorf("%s: offer %v with %v", tt.name, v.Offer, v.Valid)
		}
	}
}

// TestAddressesAreUsedOnceRecorded checks that with an API, an address is not announced before it
// is recorded.
func TestAddressesAreUsedOnceRecorded(t *testing.T) {
	t.Parallel()
	e := export("team-a", "api", 1, service(tcp("http", 80)))
	w := mcs.ClusterView{Fabric: sample(), Cluster: "g1", Exports: []mcs.Export{e}, HasAPI: true, Namespaces: []string{"team-a"}}
	before := mcs.Decide(w).Exports[0]
	if len(before.Addrs) != 1 || len(before.Offer.Addrs) != 0 || before.Ready.Reason != "Pending" {
		t.Fatalf("before the record: %+v, offer %+v", before, before.Offer)
	}
	w.Exports[0].Addrs = before.Addrs
	after := mcs.Decide(w).Exports[0]
	if !cmp.Equal(after.Offer.Addrs, before.Addrs, cmp.Comparer(sameAddr)) || after.Ready.Status != "True" {
		t.Errorf("after the record: %+v, offer %+v", after, after.Offer)
	}
	// A recorded address is ignored if the topology allocated it, or if it is in no block of
	// this cluster.
	for _, wrong := range []string{"242.1.0.1", "242.2.200.1", "10.0.0.1", "242.1.192.0"} {
		w.Exports[0].Addrs = addrs(wrong)
		if v := mcs.Decide(w).Exports[0]; len(v.Offer.Addrs) != 0 || !cmp.Equal(v.Addrs, before.Addrs, cmp.Comparer(sameAddr)) {
			t.Errorf("with the record %s: %v, offer %v", wrong, v.Addrs, v.Offer.Addrs)
		}
	}
}

// TestPoolThatIsFull checks that the condition names the export without an address, and the
// required change.
func TestPoolThatIsFull(t *testing.T) {
	t.Parallel()
	f := sample()
	f.Clusters[0].Dynamic = prefixes("242.1.192.0/30")
	var exports []mcs.Export
	for i, name := range []string{"a", "b", "c"} {
		exports = append(exports, export("team-a", name, i, service(tcp("", 80))))
	}
	list := mcs.Decide(mcs.ClusterView{Fabric: f, Cluster: "g1", Exports: exports}).Exports
	for _, v := range list[:2] {
		if v.Ready.Status != "True" {
			t.Errorf("%s: %+v", v.Export.Name, v.Ready)
		}
	}
	want := mcs.Condition{Type: "Ready", Status: "False", Reason: "Failed",
		Message: "no address is left in 242.1.192.0/30 of cluster g1: give the cluster a larger globalCIDR, or export less"}
	if list[2].Ready != want {
		t.Errorf("the condition of the youngest is %+v, want %+v", list[2].Ready, want)
	}
}

// settled returns the exports after gateways recorded the results.
func settled(f *fabric.Fabric, exports []mcs.Export, hostnames map[string][]string) []mcs.Export {
	w := mcs.ClusterView{Fabric: f, Cluster: "g1", HasAPI: true, Namespaces: []string{"team-a", "team-b"}, Hostnames: hostnames}
	w.Exports = slices.Clone(exports)
	for range 3 {
		for _, v := range mcs.Decide(w).Exports {
			i := slices.IndexFunc(w.Exports, func(e mcs.Export) bool { return e.Name == v.Export.Name })
			w.Exports[i].Addrs, w.Exports[i].Hosts = mcs.ParseAddresses(mcs.FormatAddresses(v.Addrs, v.Hosts))
			w.Exports[i].AddressesConfirmed = w.Exports[i].ConfirmsAddresses(v.Ready.Message)
		}
	}
	return w.Exports
}

// TestAddressInUseIsNotTaken writes another export's address into the annotation of an older
// export. The older export does not get the address while the younger one uses it. The younger one
// keeps it.
func TestAddressInUseIsNotTaken(t *testing.T) {
	t.Parallel()
	headless := service(tcp("http", 80))
	headless.Headless = true
	tests := []struct {
		name        string
		old, victim *mcs.Service
		steal       func(old, victim *mcs.Export)
		taken       func(v mcs.ExportResult) string
	}{
		{"address", service(tcp("http", 80)), service(tcp("http", 80)), func(old, victim *mcs.Export) { old.Addrs = victim.Addrs },
			func(v mcs.ExportResult) string { return fmt.Sprint(v.Offer.Addrs) }},
		{"of a pod", headless, headless, func(old, victim *mcs.Export) { old.Hosts[0].IPs = victim.Hosts[0].IPs },
			func(v mcs.ExportResult) string { return fmt.Sprint(v.RecordedHosts) }},
		{"by a pod", headless, service(tcp("http", 80)), func(old, victim *mcs.Export) { old.Hosts[0].IPs = victim.Addrs },
			func(v mcs.ExportResult) string { return fmt.Sprint(v.Offer.Addrs) }},
	}
	for _, tt := range tests {
		f := sample()
		f.Clusters[0].Globalnet = true
		pods := map[string][]string{"team-a/old": {"db-0"}, "team-b/victim": {"db-0"}}
		exports := settled(f, []mcs.Export{export("team-a", "old", 1, tt.old), export("team-b", "victim", 2, tt.victim)}, pods)
		world := func(list []mcs.Export) mcs.ClusterView {
			return mcs.ClusterView{Fabric: f, Cluster: "g1", HasAPI: true, Namespaces: []string{"team-a", "team-b"}, Hostnames: pods, Exports: list}
		}
		before := mcs.Decide(world(exports)).Exports
		if !exports[0].AddressesConfirmed || !exports[1].AddressesConfirmed || tt.taken(before[1]) == "[]" {
			t.Fatalf("%s: nothing is in use: %+v", tt.name, exports)
		}
		message := before[0].Ready.Message
		tt.steal(&exports[0], &exports[1])
		if exports[0].AddressesConfirmed = exports[0].ConfirmsAddresses(message); exports[0].AddressesConfirmed {
			t.Fatalf("%s: the status still confirms changed addresses", tt.name)
		}
		after := mcs.Decide(world(exports)).Exports
		if want, have := tt.taken(before[1]), tt.taken(after[1]); want != have {
			t.Errorf("%s: the other had %s and has %s", tt.name, want, have)
		}
		if after[1].Ready.Status != "True" {
			t.Errorf("%s: the other is %+v", tt.name, after[1].Ready)
		}
	}
}
