//go:build kube

package mcs

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var (
	contexts = flag.String("contexts", "c1,c2", "contexts of KUBECONFIG; the first exports, the second is the second exporter")
	domain   = flag.String("domain", "clusterset.local", "DNS domain of the clusterset")
	hidden   = flag.Bool("hidden", false, "the clusters' pod addresses are hidden from each other: tests that ask for them are skipped")
	results  = flag.String("results", "", "file for a table of the results")
)

// spec is one rule. Those that are required make an implementation conformant.
type spec struct {
	name     string
	required bool
	// addresses: by its text the rule wants the pods' own addresses.
	addresses bool
	run       func(b *bed)
}

func specs() []spec {
	return []spec{
		{name: "01_what_is_not_exported_is_not_reached", required: true, run: notExported},
		{name: "02_import_lives_as_long_as_one_cluster_exports", required: true, run: importLives},
		{name: "03_clusterip_gives_an_import_of_type_clustersetip", required: true, run: typeClusterSetIP},
		{name: "04_session_affinity_of_the_import", required: true, run: sessionAffinity},
		{name: "05_internal_traffic_policy_of_the_import", required: true, run: internalTrafficPolicy},
		{name: "06_traffic_distribution_of_the_import", required: true, run: trafficDistribution},
		{name: "07_an_address_for_each_family", required: true, run: addressPerFamily},
		{name: "08_ports_of_the_import", required: true, run: portsOfImport},
		{name: "09_union_of_ports_is_a_conflict", required: true, run: portUnion},
		{name: "10_conflicting_ports_are_the_oldest_ones", required: true, run: portConflict},
		{name: "11_headless_gives_an_import_of_type_headless", required: true, run: typeHeadless},
		{name: "12_headless_import_has_no_address", required: true, run: headlessNoAddress},
		{name: "13_externalname_is_not_valid", required: true, run: externalName},
		{name: "14_conflicting_headlessness", required: true, run: headlessConflict},
		{name: "15_only_exported_labels_and_annotations", run: exportedLabels},
		{name: "16_conflicting_labels_and_annotations", run: labelsConflict},
		{name: "17_endpointslices_of_the_import", run: endpointSlices},
		{name: "18_name_gives_the_clusterset_address", run: nameOfClusterIP},
		{name: "19_srv_of_the_name", run: srvOfClusterIP},
		{name: "20_cluster_local_stays_local", run: clusterLocal},
		{name: "21_exported_service_is_reached_by_name", run: reachedByName},
		{name: "22_only_the_exporting_cluster_is_reached", run: onlyExporting},
		{name: "23_same_port_name_other_number", run: sameNameOtherNumber},
		{name: "24_other_port_name_on_each_cluster", run: otherNameEach},
		{name: "25_headless_name_gives_the_pods", addresses: true, run: headlessName},
		{name: "26_hostname_and_cluster_give_one_pod", run: headlessHostname},
		{name: "27_srv_of_the_headless_name", run: headlessSRV},
	}
}

// TestConformance runs the twenty-seven, a few at a time, each in a namespace of
// its own.
func TestConformance(t *testing.T) {
	clusters := connect(t)
	outcome := make([]string, len(specs()))
	t.Cleanup(func() { report(t, outcome) })
	for i, s := range specs() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			outcome[i] = "failed"
			t.Cleanup(func() {
				switch {
				case t.Skipped():
					outcome[i] = "skipped"
				case !t.Failed():
					outcome[i] = "passed"
				}
			})
			if s.addresses && *hidden {
				t.Skip("by its text it wants the pods' own addresses, which are hidden")
			}
			s.run(newBed(t, clusters))
		})
	}
}

func report(t *testing.T, outcome []string) {
	if *results == "" {
		return
	}
	var out strings.Builder
	count := map[string]int{}
	for i, s := range specs() {
		sort := "optional"
		if s.required {
			sort = "required"
		}
		number, words, _ := strings.Cut(s.name, "_")
		_, _ = fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", number, sort, strings.ReplaceAll(words, "_", " "), outcome[i])
		count[outcome[i]]++
	}
	_, _ = fmt.Fprintf(&out, "\n%d passed, %d skipped, %d failed.\n", count["passed"], count["skipped"], count["failed"])
	if err := os.WriteFile(*results, []byte(out.String()), 0o644); err != nil {
		t.Error(err)
	}
}
