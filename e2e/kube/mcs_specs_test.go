//go:build kube

package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

func notExported(c *conformance) {
	c.applyIn(c.first, helloService(), deployment(1))
	c.awaitReady(c.first, c.second)
	for range 20 {
		for _, cluster := range c.clusters {
			if out := c.requestPod(cluster, 42); strings.Contains(out, "pod ip") {
				c.t.Fatalf("%s reaches it: %s", cluster, out)
			}
		}
	}
}

func importLives(c *conformance) {
	there := func() string {
		if _, found := getObject[serviceImport](c, c.first, "serviceimport", "hello"); !found {
			return "the ServiceImport is gone"
		}
		return ""
	}
	c.createService(c.first)
	c.applyYounger(helloService(), deployment(1), export("hello"))
	c.awaitCondition(c.second, "Valid", "True")
	c.checkSteady(there)
	c.unexport(c.first)
	c.checkSteady(there)
	c.unexport(c.second)
	c.awaitNoImport(c.first)
}

func clusterSetIP(c *conformance) { typeOfImport(c, "ClusterSetIP") }

func headlessImport(c *conformance) { typeOfImport(c, "Headless", "clusterIP: None") }

func typeOfImport(c *conformance, kind string, spec ...string) {
	c.createService(c.first, spec...)
	c.awaitCondition(c.first, "Valid", "True")
	for _, cluster := range c.clusters {
		if have := c.awaitImport(cluster).Spec.Type; have != kind {
			c.t.Errorf("%s: type %s, want %s", cluster, have, kind)
		}
	}
	c.unexport(c.first)
	for _, cluster := range c.clusters {
		c.awaitNoImport(cluster)
	}
}

// serviceSpec has the compared fields of a Service.
type serviceSpec struct {
	Spec struct {
		SessionAffinity       string
		SessionAffinityConfig any
		Ports                 []importPort
		ClusterIPs            []string
	}
}

func affinity(c *conformance) {
	c.createService(c.first)
	have := c.awaitImport(c.first)
	want, _ := getObject[serviceSpec](c, c.first, "service", "hello")
	if have.Spec.SessionAffinity != want.Spec.SessionAffinity || jsonOf(have.Spec.SessionAffinityConfig) != jsonOf(want.Spec.SessionAffinityConfig) {
		c.t.Errorf("affinity %s %s, want %s %s", have.Spec.SessionAffinity, jsonOf(have.Spec.SessionAffinityConfig),
			want.Spec.SessionAffinity, jsonOf(want.Spec.SessionAffinityConfig))
	}
}

func jsonOf(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func internalPolicy(c *conformance) {
	c.createService(c.first, "internalTrafficPolicy: Cluster")
	if have := c.awaitImport(c.first).Spec.InternalTrafficPolicy; have != "Cluster" {
		c.t.Errorf("internal traffic policy %q", have)
	}
}

func distribution(c *conformance) {
	c.createService(c.first, "trafficDistribution: PreferClose")
	if have := c.awaitImport(c.first).Spec.TrafficDistribution; have != "PreferClose" {
		c.t.Errorf("traffic distribution %q", have)
	}
}

func importIPs(c *conformance) {
	c.createService(c.first)
	c.awaitImportState(c.first, func(i serviceImport) string {
		if len(i.Spec.IPs) == 0 || len(i.Spec.IPs) != len(i.Spec.IPFamilies) {
			return fmt.Sprintf("IPs %v of families %v", i.Spec.IPs, i.Spec.IPFamilies)
		}
		for n, ip := range i.Spec.IPs {
			if strings.Contains(ip, ":") != (i.Spec.IPFamilies[n] == "IPv6") {
				return fmt.Sprintf("IPs %v of families %v", i.Spec.IPs, i.Spec.IPFamilies)
			}
		}
		return ""
	})
}

func ports(c *conformance) {
	c.createService(c.first, "ports:", "- {name: tcp, port: 42, protocol: TCP, appProtocol: example.com/hello}", "- {name: udp, port: 42, protocol: UDP}")
	have := c.awaitImport(c.first)
	if want := "tcp TCP/42 example.com/hello, udp UDP/42 "; portTexts(have.Spec.Ports) != want {
		c.t.Errorf("ports %q, want %q", portTexts(have.Spec.Ports), want)
	}
}

func portUnion(c *conformance) {
	c.createService(c.first)
	c.applyYounger(helloService("ports:", "- {name: stcp, port: 142, protocol: SCTP}"), export("hello"))
	for _, cluster := range c.clusters {
		c.awaitCondition(cluster, "Conflict", "True")
	}
	for _, cluster := range c.clusters {
		c.awaitImportState(cluster, func(i serviceImport) string {
			if have := portTexts(i.Spec.Ports); have != "stcp SCTP/142 , tcp TCP/42 , udp UDP/42 " {
				return cluster + ": ports " + have
			}
			return ""
		})
	}
}

func portConflict(c *conformance) {
	c.createService(c.first)
	c.applyYounger(helloService("ports:", "- {name: tcp, port: 43, protocol: TCP}", "- {name: udp, port: 42, protocol: UDP}"), export("hello"))
	for _, cluster := range c.clusters {
		c.awaitCondition(cluster, "Conflict", "True")
	}
	c.awaitImportState(c.first, func(i serviceImport) string {
		if have := portTexts(i.Spec.Ports); have != "tcp TCP/42 , udp UDP/42 " {
			return "ports " + have
		}
		return ""
	})
}

func headlessIPs(c *conformance) {
	c.createService(c.first, "clusterIP: None")
	c.awaitImport(c.first)
	c.checkSteady(func() string {
		if i, _ := getObject[serviceImport](c, c.first, "serviceimport", "hello"); len(i.Spec.IPs) > 0 {
			return fmt.Sprintf("it has IPs: %v", i.Spec.IPs)
		}
		return ""
	})
}

func externalName(c *conformance) {
	c.applyIn(c.first, `apiVersion: v1
kind: Service
metadata: {name: hello}
spec: {type: ExternalName, externalName: example.com}
`, export("hello"))
	c.awaitCondition(c.first, "Valid", "False")
	c.checkSteady(func() string {
		for _, cluster := range c.clusters {
			if _, found := getObject[serviceImport](c, cluster, "serviceimport", "hello"); found {
				return "there is a ServiceImport in " + cluster
			}
		}
		return ""
	})
}

func typeConflict(c *conformance) {
	c.createService(c.first)
	c.applyYounger(helloService("clusterIP: None"), deployment(1), export("hello"))
	for _, cluster := range c.clusters {
		c.awaitCondition(cluster, "Conflict", "True")
	}
	for _, cluster := range c.clusters {
		c.awaitImportState(cluster, func(i serviceImport) string {
			if i.Spec.Type != "ClusterSetIP" {
				return cluster + ": type " + i.Spec.Type
			}
			return ""
		})
	}
}

func exported(value string) string {
	return export("hello", "exportedLabels: {exported: "+value+", only-"+value+": x}", "exportedAnnotations: {exported: "+value+", only-"+value+": x}")
}

func labels(c *conformance) {
	c.applyIn(c.first, helloService(), deployment(1), exported("first"))
	for _, cluster := range c.clusters {
		c.awaitImportState(cluster, func(i serviceImport) string {
			for _, entries := range []map[string]string{i.Metadata.Labels, i.Metadata.Annotations} {
				if entries["exported"] != "first" || entries["only-first"] != "x" {
					return fmt.Sprintf("%s: labels %v, annotations %v", cluster, i.Metadata.Labels, i.Metadata.Annotations)
				}
				if entries["dummy-svc"] != "" || entries["dummy-svcexport"] != "" {
					return fmt.Sprintf("%s: imported without an export: %v", cluster, entries)
				}
			}
			return ""
		})
	}
}

func labelConflict(c *conformance) {
	c.applyIn(c.first, helloService(), deployment(1), exported("first"))
	c.applyYounger(helloService(), deployment(1), exported("second"))
	for _, cluster := range c.clusters {
		c.awaitCondition(cluster, "Conflict", "True")
	}
	c.awaitImportState(c.first, func(i serviceImport) string {
		for _, entries := range []map[string]string{i.Metadata.Labels, i.Metadata.Annotations} {
			if entries["exported"] != "first" || entries["only-first"] != "x" || entries["only-second"] != "" {
				return fmt.Sprintf("labels %v, annotations %v", i.Metadata.Labels, i.Metadata.Annotations)
			}
		}
		return ""
	})
}

// sliceList has the checked fields of EndpointSlices.
type sliceList struct {
	Items []struct {
		Metadata  struct{ Labels map[string]string }
		Endpoints []struct {
			Addresses  []string
			Hostname   string
			Conditions struct{ Ready *bool }
		}
	}
}

const (
	ofImport = "multicluster.kubernetes.io/service-name"
	ofSource = "multicluster.kubernetes.io/source-cluster"
	keptBy   = "endpointslice.kubernetes.io/managed-by"
)

// slicesOf returns the slices with a label.
func (c *conformance) slicesOf(cluster, label string) sliceList {
	c.t.Helper()
	var out sliceList
	text := c.kubectl(c.t, cluster, "-n", c.namespace, "get", "endpointslices", "-l", label, "-o", "json")
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		c.t.Fatal(err)
	}
	return out
}

// addresses returns the sorted addresses of all endpoints.
func (l sliceList) addresses() []string {
	var out []string
	for _, s := range l.Items {
		for _, e := range s.Endpoints {
			out = append(out, e.Addresses...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func endpointSlices(c *conformance) {
	c.createService(c.first)
	for _, cluster := range c.clusters {
		c.await(sliceTime, func() string {
			list := c.slicesOf(cluster, ofImport+"=hello")
			if len(list.Items) == 0 {
				return cluster + " has no slices"
			}
			for _, s := range list.Items {
				l := s.Metadata.Labels
				if l[ofSource] == "" || l[keptBy] == "" || l[keptBy] == "endpointslice-controller.k8s.io" || len(s.Endpoints) == 0 {
					return fmt.Sprintf("%s: labels %v, endpoints %v", cluster, l, s.Endpoints)
				}
			}
			return ""
		})
	}
	c.unexport(c.first)
	for _, cluster := range c.clusters {
		c.await(importTime, func() string {
			if n := len(c.slicesOf(cluster, ofImport+"=hello").Items); n > 0 {
				return fmt.Sprintf("%s still has %d slices", cluster, n)
			}
			return ""
		})
	}
}
