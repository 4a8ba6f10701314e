package mcs_test

import (
	"fmt"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/schema/fabric"
)

// TestAddresses checks that formatted addresses can be parsed again, and invalid items are skipped.
func TestAddresses(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"":                               "",
		"242.0.0.1":                      "242.0.0.1",
		"fd42::1, 242.0.0.1,242.0.0.2":   "242.0.0.1,fd42::1",
		"db-1=242.0.0.2,db-0=242.0.0.1":  "db-0=242.0.0.1,db-1=242.0.0.2",
		"db-0=fd42::1,db-0=242.0.0.1":    "db-0=242.0.0.1,db-0=fd42::1",
		"db-0=242.0.0.1,db-0=242.0.0.2":  "db-0=242.0.0.1",
		"=242.0.0.1,db-0=,db-1,x=y,::%a": "",
	}
	for text, want := range tests {
		if have := mcs.FormatAddresses(mcs.ParseAddresses(text)); have != want {
			t.Errorf("%q: have %q, want %q", text, have, want)
		}
	}
}

// shared returns a view with one headless export. Other clusters cannot reach its pods at their own
// addresses.
func shared(recorded bool, present ...string) mcs.ClusterView {
	f := sample()
	f.Clusters[0].Globalnet, f.Clusters[0].EgressMode = true, fabric.EgressShared
	s := service(tcp("http", 80))
	s.Headless = true
	return mcs.ClusterView{
		Fabric: f, Cluster: "g1", HasAPI: recorded, Namespaces: []string{"team-a"}, Exports: []mcs.Export{export("team-a", "db", 1, s)},
		Hostnames: map[string][]string{"team-a/db": present},
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	w := shared(true, "db-0", "db-1")
	first := mcs.Decide(w).Exports[0]
	if len(first.Hosts) != 2 || len(first.RecordedHosts) != 0 || first.Ready.Reason != "Pending" {
		t.Fatalf("before the record: %+v", first)
	}
	for _, h := range first.Hosts {
		if len(h.IPs) != 1 || !w.Fabric.Clusters[0].Dynamic[0].Contains(h.IPs[0]) {
			t.Errorf("%s has %v", h.Name, h.IPs)
		}
	}
	// With the record, without db-1 and with db-2: pods with an address keep it.
	w.Exports[0].Hosts = first.Hosts
	w.Hostnames["team-a/db"] = []string{"db-0", "db-2"}
	second := mcs.Decide(w).Exports[0]
	text := mcs.FormatAddresses(nil, second.Hosts)
	if len(second.Hosts) != 3 || len(second.RecordedHosts) != 2 || !strings.HasPrefix(text, mcs.FormatAddresses(nil, first.Hosts)+",db-2=") {
		t.Errorf("with the record %v: %+v", first.Hosts, second)
	}
	e := mcs.Decide(w).Dynamic()[0]
	if have := fmt.Sprint(e.Clusters[0].Hosts); have != fmt.Sprint(second.RecordedHosts) || len(e.Clusters[0].IPs) > 0 {
		t.Errorf("the fabric has %s, want %v", have, second.RecordedHosts)
	}
	// Without an API the addresses are used without a record. Without Hostnames the pods need
	// none.
	if v := mcs.Decide(shared(false, "db-0")).Exports[0]; len(v.RecordedHosts) != 1 || v.Ready.Status != "True" {
		t.Errorf("without a record: %+v", v)
	}
	w.Hostnames = nil
	if v := mcs.Decide(w).Exports[0]; len(v.Hosts)+len(v.RecordedHosts) > 0 || v.Ready.Status != "True" {
		t.Errorf("where pods need none: %+v", v)
	}
}

// TestHostsBound checks that with too many pods, present pods with an address come first. The
// condition reports a lack of addresses.
func TestHostsBound(t *testing.T) {
	t.Parallel()
	var present []string
	for i := range 400 {
		present = append(present, fmt.Sprintf("db-%d", i))
	}
	w := shared(true, present...)
	w.Exports[0].Hosts = []fabric.Host{{Name: "away", IPs: addrs("242.1.200.1")}, {Name: "db-399", IPs: addrs("242.1.200.2")}}
	v := mcs.Decide(w).Exports[0]
	text := mcs.FormatAddresses(nil, v.Hosts)
	if len(v.Hosts) != 256 || strings.Contains(text, "away") || !strings.Contains(text, "db-399=242.1.200.2") {
		t.Errorf("%d hosts: %s", len(v.Hosts), text)
	}
	w.Fabric.Clusters[0].Dynamic = prefixes("242.1.0.0/29") // the topology uses one of the six
	v = mcs.Decide(w).Exports[0]
	if len(v.Hosts) != 5 || v.Ready.Reason != "Failed" || !strings.Contains(v.Ready.Message, "for some of its pods") {
		t.Errorf("%d hosts, %+v", len(v.Hosts), v.Ready)
	}
}
