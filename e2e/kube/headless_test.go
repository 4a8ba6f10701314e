//go:build kube

package kube

import (
	"slices"
	"strings"
	"testing"
)

// TestHeadlessDynamic exports a StatefulSet's headless Service with kubectl. Pods of the other cluster
// reach its pods by their names. Restarted pods keep their global addresses.
func TestHeadlessDynamic(t *testing.T) { headlessDynamic(t, samePrefixes) }

// TestHeadlessDynamicFlat tests the same without globalnet: pods keep their own addresses between
// clusters, and a restarted pod has a new address.
func TestHeadlessDynamicFlat(t *testing.T) { headlessDynamic(t, flat) }

func headlessDynamic(t *testing.T, opts labOptions) {
	s := needClusterset(t, opts)
	d := s.createExport(t)
	all := s.awaitAddresses(t, "c1", "client", d.name, 3)
	for _, pod := range []string{"whereami-0", "whereami-1", "whereami-2"} {
		s.awaitAnswer(t, "c1", "client", pod+".c2."+d.name, func(a answer) bool { return a.Pod == pod && a.Cluster == "c2" })
	}
	own := strings.Fields(s.kubectl(t, "c2", "-n", d.namespace, "get", "pods", "-l", "app=whereami-ss", "-o", "jsonpath={.items[*].status.podIP}"))
	slices.Sort(own)
	if slices.Equal(all, own) != opts.flat {
		t.Errorf("pods have %v, the name has %v", own, all)
	}
	scale := func(replicas string) {
		s.kubectl(t, "c2", "-n", d.namespace, "scale", "statefulset/whereami", "--replicas="+replicas)
	}
	scale("2")
	s.awaitAddresses(t, "c1", "client", d.name, 2)
	s.eventually(t, contains("NXDOMAIN"), inPod("c1", "client", "dig", "whereami-2.c2."+d.name)...)
	scale("3")
	again := s.awaitAddresses(t, "c1", "client", d.name, 3)
	if !opts.flat && !slices.Equal(again, all) { // flat: the new pod has a new address
		t.Errorf("addresses were %v, are %v", all, again)
	}
	s.awaitAnswer(t, "c1", "client", "whereami-2.c2."+d.name, func(a answer) bool { return a.Pod == "whereami-2" })
	s.kubectl(t, "c2", "-n", d.namespace, "delete", "serviceexport", "whereami-ss")
	s.eventually(t, contains("NXDOMAIN"), inPod("c1", "client", "dig", d.name)...)
}
