//go:build kube

package kube

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// answers returns the addresses in an answer of nslookup.
func answers(out string) []string {
	var found []string
	_, rest, _ := strings.Cut(out, "\nName:")
	for line := range strings.SplitSeq("Name:"+rest, "\n") {
		if address, is := strings.CutPrefix(line, "Address: "); is {
			found = append(found, strings.TrimSpace(address))
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// records returns the SRV records in an answer of nslookup: port and target.
func records(out string) [][2]string {
	var found [][2]string
	for line := range strings.SplitSeq(out, "\n") {
		if _, record, is := strings.Cut(line, "service = "); is {
			if parts := strings.Fields(record); len(parts) == 4 {
				found = append(found, [2]string{parts[2], parts[3]})
			}
		}
	}
	return found
}

func (c *conformance) lookup(cluster, kind, name string) string {
	c.t.Helper()
	return c.run(cluster, "nslookup -type="+kind+" "+name+".")
}

// resolves waits until a name has exactly the wanted addresses, in each family.
func (c *conformance) resolves(cluster, name string, want []string) {
	c.t.Helper()
	for _, f := range c.shape.addressFamilies() {
		var wanted []string
		for _, addr := range want {
			if f.matches(addr) {
				wanted = append(wanted, addr)
			}
		}
		c.await(importTime, func() string {
			if have := answers(c.lookup(cluster, f.record, name)); !slices.Equal(have, wanted) {
				return fmt.Sprintf("%s: %s is %v, want %v", cluster, name, have, wanted)
			}
			return ""
		})
	}
}

func nameOfService(c *conformance) {
	c.createService(c.first)
	c.awaitReady(c.first, c.second)
	for _, cluster := range c.clusters {
		want := c.awaitImportState(cluster, func(i serviceImport) string {
			if len(i.Spec.IPs) == 0 {
				return cluster + ": no IPs"
			}
			return ""
		}).Spec.IPs
		c.resolves(cluster, c.name("clusterset.local"), want)
	}
}

func srvOfService(c *conformance) {
	c.createService(c.first)
	c.awaitReady(c.first, c.second)
	want := [][2]string{{"42", c.name("clusterset.local") + "."}}
	for _, cluster := range c.clusters {
		c.awaitImport(cluster)
		c.await(importTime, func() string {
			if have := records(c.lookup(cluster, "SRV", c.name("clusterset.local"))); !slices.Equal(have, want) {
				return fmt.Sprintf("%s: %v, want %v", cluster, have, want)
			}
			return ""
		})
	}
}

func localNames(c *conformance) {
	c.createService(c.first)
	c.awaitReady(c.first)
	c.awaitImport(c.first)
	local, _ := getObject[serviceSpec](c, c.first, "service", "hello")
	c.resolves(c.first, c.name("cluster.local"), local.Spec.ClusterIPs)
}

// always sends requests until a pod answers. The same pod must then answer n requests in a row.
func (c *conformance) always(cluster string, port int, pod string, n int) {
	c.t.Helper()
	right := 0
	c.await(importTime*time.Duration(n), func() string {
		out := c.requestPod(cluster, port)
		if !strings.Contains(out, "pod ip "+pod) {
			right = 0
			return fmt.Sprintf("%s gets %q at port %d, want %s", cluster, out, port, pod)
		}
		if right++; right < n {
			return "not often enough"
		}
		return ""
	})
}

func reached(c *conformance) {
	c.createService(c.first)
	c.awaitReady(c.first, c.second)
	for _, cluster := range c.clusters {
		c.awaitImport(cluster)
		c.always(cluster, 42, c.podIP(c.first), 1)
	}
}

func reachedInOne(c *conformance) {
	c.createService(c.first)
	c.applyIn(c.second, helloService(), deployment(1))
	c.awaitReady(c.first, c.second)
	for _, cluster := range c.clusters {
		c.awaitImport(cluster)
		c.always(cluster, 42, c.podIP(c.first), 10)
	}
}

func strictNumber(c *conformance) {
	c.createService(c.first)
	c.applyYounger(helloService("ports:", "- {name: tcp, port: 4242, targetPort: 42, protocol: TCP}", "- {name: udp, port: 42, protocol: UDP}"), deployment(1), export("hello"))
	c.awaitReady(c.first, c.second)
	c.awaitCondition(c.second, "Conflict", "True")
	for _, cluster := range c.clusters {
		c.always(cluster, 42, c.podIP(c.first), 10)
	}
}

func strictName(c *conformance) {
	c.createService(c.first)
	c.applyYounger(helloService("ports:", "- {name: other, port: 4242, targetPort: 42, protocol: TCP}"), deployment(1), export("hello"))
	c.awaitReady(c.first, c.second)
	c.awaitCondition(c.second, "Conflict", "True")
	for _, cluster := range c.clusters {
		c.always(cluster, 42, c.podIP(c.first), 10)
		c.always(cluster, 4242, c.podIP(c.second), 10)
	}
}

func nameOfHeadless(c *conformance) {
	c.applyIn(c.first, helloService("clusterIP: None"), deployment(2), export("hello"))
	c.awaitReady(c.first, c.second)
	want := c.slicesOf(c.first, "kubernetes.io/service-name=hello").addresses()
	if len(want) != 2*len(c.shape.addressFamilies()) {
		c.t.Fatalf("the pods have the addresses %v", want)
	}
	for _, cluster := range c.clusters {
		c.awaitImport(cluster)
		c.resolves(cluster, c.name("clusterset.local"), want)
	}
}

func nameOfPod(c *conformance) {
	c.applyIn(c.first, strings.ReplaceAll(helloService("clusterIP: None"), "hello", "hello-ss"), statefulSet, export("hello-ss"))
	c.awaitReady(c.first, c.second)
	for _, cluster := range c.clusters {
		var list sliceList
		c.await(sliceTime, func() string {
			list = c.slicesOf(cluster, ofImport+"=hello-ss")
			named := 0
			for _, s := range list.Items {
				for _, e := range s.Endpoints {
					if e.Hostname != "" && e.Conditions.Ready != nil && *e.Conditions.Ready {
						named++
					}
				}
			}
			if named != 2*len(c.shape.addressFamilies()) {
				return fmt.Sprintf("%s: %d ready endpoints with a hostname", cluster, named)
			}
			return ""
		})
		of := map[string][]string{} // by name, of all families
		for _, s := range list.Items {
			for _, e := range s.Endpoints {
				name := e.Hostname + "." + s.Metadata.Labels[ofSource] + ".hello-ss." + c.namespace + ".svc.clusterset.local"
				of[name] = append(of[name], e.Addresses...)
			}
		}
		for name, addrs := range of {
			c.resolves(cluster, name, addrs)
		}
	}
}

func srvOfHeadless(c *conformance) {
	c.applyIn(c.first, helloService("clusterIP: None"), deployment(2), export("hello"))
	c.awaitReady(c.first, c.second)
	pods := slices.DeleteFunc(c.slicesOf(c.first, "kubernetes.io/service-name=hello").addresses(), func(addr string) bool {
		return !c.shape.addressFamilies()[0].matches(addr) // records use a pod's first address
	})
	for _, cluster := range c.clusters {
		c.awaitImport(cluster)
		c.await(importTime, func() string {
			have := records(c.lookup(cluster, "SRV", c.name("clusterset.local")))
			if len(have) != 2 || len(pods) != 2 {
				return fmt.Sprintf("%s: %v for pods %v", cluster, have, pods)
			}
			for _, r := range have {
				if r[0] != "42" || !slices.ContainsFunc(pods, func(ip string) bool { return strings.HasPrefix(r[1], strings.ReplaceAll(ip, ".", "-")+".") }) {
					return fmt.Sprintf("%s: record %v for pods %v", cluster, r, pods)
				}
			}
			return ""
		})
	}
}
