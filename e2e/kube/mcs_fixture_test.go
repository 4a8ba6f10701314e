//go:build kube

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// applyIn applies manifests in the namespace of the spec.
func (c *conformance) applyIn(cluster string, manifests ...string) {
	c.t.Helper()
	c.must(c.t, strings.Join(manifests, "\n---\n"), "kubectl", "--context", cluster, "-n", c.namespace,
		"apply", "--server-side", "--force-conflicts", "-f", "-")
}

func (c *conformance) unexport(cluster string) {
	c.t.Helper()
	c.kubectl(c.t, cluster, "-n", c.namespace, "delete", "serviceexport", "hello", "--wait=false")
}

// awaitReady waits for the pods of the namespace.
func (c *conformance) awaitReady(clusters ...string) {
	c.t.Helper()
	for _, cluster := range clusters {
		for _, kind := range []string{"deployment", "statefulset"} {
			for name := range strings.FieldsSeq(c.kubectl(c.t, cluster, "-n", c.namespace, "get", kind, "-o", "name")) {
				c.kubectl(c.t, cluster, "-n", c.namespace, "rollout", "status", name, "--timeout="+conditionTimeout.String())
			}
		}
		c.kubectl(c.t, cluster, "-n", c.namespace, "wait", "--for=condition=Ready", "pod/request", "--timeout="+conditionTimeout.String())
	}
}

// createService creates the service with its pods in a cluster and exports it.
func (c *conformance) createService(cluster string, spec ...string) {
	c.t.Helper()
	c.applyIn(cluster, helloService(spec...), deployment(1), export("hello"))
}

// applyYounger applies manifests in the second cluster, whose exports are younger.
func (c *conformance) applyYounger(manifests ...string) {
	c.t.Helper()
	c.awaitImport(c.first)
	time.Sleep(olderByTime) // creation times are whole seconds
	c.applyIn(c.second, manifests...)
}

// await repeats a check until it returns no problem, for at most the suite's time limit.
func (c *conformance) await(limit time.Duration, check func() string) {
	c.t.Helper()
	end := time.Now().Add(limit * c.slow)
	for {
		wrong := check()
		if wrong == "" {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("after %s: %s", limit*c.slow, wrong)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// checkSteady repeats a check, which must never return a problem.
func (c *conformance) checkSteady(check func() string) {
	c.t.Helper()
	for end := time.Now().Add(steadyTime); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if wrong := check(); wrong != "" {
			c.t.Fatal(wrong)
		}
	}
}

// serviceImport has the checked fields of a ServiceImport.
type serviceImport struct {
	Metadata struct{ Labels, Annotations map[string]string }
	Spec     struct {
		Type                  string
		IPs                   []string
		IPFamilies            []string
		Ports                 []importPort
		SessionAffinity       string
		SessionAffinityConfig any
		InternalTrafficPolicy string
		TrafficDistribution   string
	}
	Status struct {
		Clusters []struct{ Cluster string }
	}
}

type importPort struct {
	Name, Protocol, AppProtocol string
	Port                        int
}

func (p importPort) String() string {
	return fmt.Sprintf("%s %s/%d %s", p.Name, p.Protocol, p.Port, p.AppProtocol)
}

func portTexts(list []importPort) string {
	var out []string
	for _, p := range list {
		out = append(out, p.String())
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// getObject reads an object. It reports false if the object does not exist.
func getObject[T any](c *conformance, cluster, kind, name string) (out T, found bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), conditionTimeout)
	defer cancel()
	text, err := c.try(ctx, "", "", "kubectl", "--context", cluster, "-n", c.namespace, "get", kind, name, "-o", "json", "--ignore-not-found")
	if err != nil {
		c.t.Fatal(err)
	}
	if strings.TrimSpace(text) == "" {
		return out, false
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		c.t.Fatalf("%s %s: %v", kind, name, err)
	}
	return out, true
}

func (c *conformance) awaitImport(cluster string) serviceImport {
	c.t.Helper()
	var out serviceImport
	c.await(importTime, func() string {
		var found bool
		if out, found = getObject[serviceImport](c, cluster, "serviceimport", "hello"); !found {
			return "there is no ServiceImport in " + cluster
		}
		return ""
	})
	return out
}

// awaitImportState waits until wrong returns no problem of the import.
func (c *conformance) awaitImportState(cluster string, wrong func(serviceImport) string) serviceImport {
	c.t.Helper()
	var out serviceImport
	c.await(importTime, func() string {
		var found bool
		if out, found = getObject[serviceImport](c, cluster, "serviceimport", "hello"); !found {
			return "there is no ServiceImport in " + cluster
		}
		return wrong(out)
	})
	return out
}

func (c *conformance) awaitNoImport(cluster string) {
	c.t.Helper()
	c.await(importTime, func() string {
		if _, found := getObject[serviceImport](c, cluster, "serviceimport", "hello"); found {
			return "there still is a ServiceImport in " + cluster
		}
		return ""
	})
}

// awaitCondition waits for a condition of the export.
func (c *conformance) awaitCondition(cluster, kind, status string) {
	c.t.Helper()
	type conditions struct {
		Status struct {
			Conditions []struct{ Type, Status, Reason, Message string }
		}
	}
	c.await(importTime, func() string {
		have, _ := getObject[conditions](c, cluster, "serviceexport", "hello")
		for _, k := range have.Status.Conditions {
			if k.Type == kind && k.Status == status {
				return ""
			}
		}
		return fmt.Sprintf("the export in %s is not %s=%s: %+v", cluster, kind, status, have.Status.Conditions)
	})
}

// run runs a command in the client of a cluster, and ignores its exit status.
func (c *conformance) run(cluster, command string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), conditionTimeout)
	defer cancel()
	out, _ := c.try(ctx, "", "", inPod(cluster, c.namespace+"/request", "sh", "-c", command)...)
	return out
}

func (c *conformance) name(domain string) string { return "hello." + c.namespace + ".svc." + domain }

// requestPod connects to the service over TCP and returns the answer of its pod.
func (c *conformance) requestPod(cluster string, port int) string {
	c.t.Helper()
	return c.run(cluster, fmt.Sprintf("echo hi | nc -4 -w 3 %s %d", c.name("clusterset.local"), port))
}

// podIP returns the address of the only pod of hello.
func (c *conformance) podIP(cluster string) string {
	c.t.Helper()
	return strings.TrimSpace(c.kubectl(c.t, cluster, "-n", c.namespace, "get", "pods", "-l", "app=hello", "-o", "jsonpath={.items[0].status.podIP}"))
}
