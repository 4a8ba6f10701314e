//go:build kube

package kube

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// addressFamily is an IP family with the prefixes of the test clusters.
type addressFamily struct {
	name   string // as the Kubernetes API calls it
	record string // type of its DNS records
	curl   string // option of curl
	pods   int    // length of the cluster's pod prefix
	global string // prefix of every global address
	shared string // prefix of the shared addresses of c2
	vip    string // prefix of every clusterset IP
	node   string // prefix of the addresses of c2's nodes
}

func (opts labOptions) addressFamilies() []addressFamily {
	four := addressFamily{"IPv4", "A", "-4", 16, "242.", "242.2.0.", "243.0.", "172.31.2."}
	six := addressFamily{"IPv6", "AAAA", "-6", 56, "fd7f:1:1:", "fd7f:1:1:2::", "fd", "fd00:172:31:2::"}
	switch opts.families {
	case "dual":
		return []addressFamily{four, six}
	case "ipv6":
		return []addressFamily{six}
	}
	return []addressFamily{four}
}

// matches reports whether an address is of the family.
func (f addressFamily) matches(addr string) bool {
	return strings.Contains(addr, ":") == (f.name == "IPv6")
}

// TestDualStack tests two clusters with the same prefixes of both families. Pods reach all exports of
// Deployments and StatefulSets over each family.
func TestDualStack(t *testing.T) { testFamilies(t, dualStack) }

// TestIPv6Only is TestDualStack without IPv4 addresses, also between the gateways.
func TestIPv6Only(t *testing.T) { testFamilies(t, ipv6Only) }

func testFamilies(t *testing.T, opts labOptions) {
	s := needClusterset(t, opts)
	defer s.down()
	for _, step := range []struct {
		name string
		do   func(*testing.T, *clusterset)
	}{
		{"tunnels", tourTunnels}, {"service", familiesService}, {"objects", func(t *testing.T, s *clusterset) { s.checkObjects(t, "sample") }},
		{"egress", familiesEgress}, {"headless", familiesHeadless}, {"address", familiesAddress}, {"dynamic", familiesDynamic},
		{"uninstall", func(t *testing.T, s *clusterset) { s.uninstall(t) }},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.do(t, s) }) {
			t.FailNow() // each step depends on the previous one
		}
	}
}

// familiesService tests requests to a service of c2 from pods and a node of c1. The name has an address
// of each family with a PTR record. The server sees the pod's own global address.
func familiesService(t *testing.T, s *clusterset) {
	for _, f := range s.shape.addressFamilies() {
		vip := s.awaitAddresses(t, "c1", "client", serviceName, 1, f.record)[0]
		if !strings.HasPrefix(vip, f.vip) {
			t.Errorf("clusterset IP %s", vip)
		}
		s.eventually(t, contains(serviceName+"."), inPod("c1", "client", "dig", "+short", "-x", vip)...)
		for _, pod := range []string{"client", "near", "host"} {
			s.awaitAnswer(t, "c1", pod, serviceName, fromCluster("c2"), f.curl)
		}
		a := s.awaitAnswer(t, "c1", "client", serviceName, fromCluster("c2"), f.curl)
		if own := s.podAddress(t, "c1", "client", f); !strings.HasPrefix(a.Client, f.global) || !sameHost(t, own, a.Client, f.pods) {
			t.Errorf("pod %s was seen as %s", own, a.Client)
		}
		s.eventually(t, contains(" 0% packet loss"), inPod("c1", "client", "ping", f.curl, "-c", "2", "-W", "5", serviceName)...)
		// The cluster's own Service still works.
		s.awaitAnswer(t, "c1", "client", "whereami-cs.sample", fromCluster("c1"), f.curl)
	}
	if s.shape == ipv6Only {
		s.eventually(t, func(out string) bool { return contains("NOERROR")(out) && contains("ANSWER: 0")(out) }, inPod("c1", "client", "dig", serviceName, "A")...)
	}
}

// familiesHeadless tests a headless service: every pod has an address and a name in each family. A pod
// uses the same address as source.
func familiesHeadless(t *testing.T, s *clusterset) {
	for _, f := range s.shape.addressFamilies() {
		own := s.checkHeadless(t, f, headlessName)
		// The pod has no tools, so the request is sent from its network namespace.
		there, err := netip.ParseAddr(s.awaitAddresses(t, "c2", "client", "c1."+serviceName, 1, f.record)[0])
		if err != nil {
			t.Fatal(err)
		}
		url := "http://" + netip.AddrPortFrom(there, 80).String()
		out := s.must(t, "", append(s.podNetwork(t, "c2", "sample/whereami-0"), "curl", "-g", "-s", "-m", "10", url)...)
		if !strings.Contains(out, `"client":"`+own+`"`) {
			t.Errorf("whereami-0 has %s, was seen as %s", own, out)
		}
	}
}

// checkHeadless checks a headless service of c2 with three pods from c1, and returns the address of the
// first pod.
func (s *clusterset) checkHeadless(t *testing.T, f addressFamily, name string) string {
	t.Helper()
	all := s.awaitAddresses(t, "c1", "client", name, 3, f.record)
	for i := range 3 {
		pod := fmt.Sprintf("whereami-%d", i)
		own := s.awaitAddresses(t, "c1", "client", pod+".c2."+name, 1, f.record)[0]
		if !slices.Contains(all, own) || !strings.HasPrefix(own, f.shared) {
			t.Errorf("%s has %s, all are %v", pod, own, all)
		}
		s.awaitAnswer(t, "c1", "client", pod+".c2."+name, func(a answer) bool { return a.Pod == pod && a.Cluster == "c2" }, f.curl)
	}
	return s.awaitAddresses(t, "c1", "client", "whereami-0.c2."+name, 1, f.record)[0]
}

// checkObjects checks c1's objects for the exports of a namespace of c2: clusterset IPs of each family,
// and slices of each with the addresses of c2.
func (s *clusterset) checkObjects(t *testing.T, namespace string) {
	t.Helper()
	var names, families []string
	for _, f := range s.shape.addressFamilies() {
		families = append(families, f.name)
		names = append(names, s.awaitAddresses(t, "c1", "client", "whereami-cs."+namespace+".svc.clusterset.local", 1, f.record)...)
	}
	want := fmt.Sprintf("%s %s", jsonOf(names), jsonOf(families))
	s.eventually(t, func(out string) bool { return out == want }, "kubectl", "--context", "c1", "-n", namespace, "get", "serviceimport", "whereami-cs",
		"-o", "jsonpath={.spec.ips} {.spec.ipFamilies}")
	for name, endpoints := range map[string]int{"whereami-cs": 1, "whereami-ss": 3} {
		s.eventually(t, func(out string) bool {
			var list addressedSlices
			return json.Unmarshal([]byte(out), &list) == nil && list.problems(s.shape, endpoints) == ""
		}, "kubectl", "--context", "c1", "-n", namespace, "get", "endpointslices", "-l", ofImport+"="+name, "-o", "json")
	}
}

type addressedSlices struct{ Items []addressedSlice }

type addressedSlice struct {
	AddressType string
	Endpoints   []struct{ Addresses []string }
}

// problems describes wrong slices, which should have a number of c2's endpoints in each family.
func (l addressedSlices) problems(opts labOptions, endpoints int) string {
	if have := len(l.Items); have != len(opts.addressFamilies()) {
		return fmt.Sprintf("%d slices", have)
	}
	for _, f := range opts.addressFamilies() {
		i := slices.IndexFunc(l.Items, func(item addressedSlice) bool { return item.AddressType == f.name })
		if i < 0 || len(l.Items[i].Endpoints) != endpoints {
			return "slices of " + f.name
		}
		for _, e := range l.Items[i].Endpoints {
			if len(e.Addresses) != 1 || !strings.HasPrefix(e.Addresses[0], f.shared) {
				return fmt.Sprintf("addresses %v", e.Addresses)
			}
		}
	}
	return ""
}

// familiesEgress exports the service from c1 too, and tests the source addresses of c2's pods: the
// addresses of their egress rules, and the cluster's shared addresses.
func familiesEgress(t *testing.T, s *clusterset) {
	s.change(t, "name: whereami-cs\n    namespace: sample\n    clusters: [c2]", "name: whereami-cs\n    namespace: sample\n    clusters: [c1, c2]")
	lock := s.must(t, "", "cat", s.path("tree/clusterset.lock.yaml"))
	for _, f := range s.shape.addressFamilies() {
		seen := map[string]string{}
		for _, pod := range []string{"billing/db", "billing/api", "client", "host"} {
			a := s.awaitAnswer(t, "c2", pod, "c1."+serviceName, func(a answer) bool { return strings.HasPrefix(a.Client, f.shared) }, f.curl)
			seen[pod] = a.Client
		}
		for pod, rule := range map[string]string{"billing/db": "billing-db", "billing/api": "billing"} {
			_, rest, _ := strings.Cut(lock, "clusters[c2].egress["+rule+"]: [")
			held, _, _ := strings.Cut(rest, "]")
			if !slices.Contains(strings.Split(held, ", "), seen[pod]) {
				t.Errorf("%s was seen as %s, allocated are %s", pod, seen[pod], held)
			}
		}
		if seen["client"] == seen["billing/db"] || seen["client"] == seen["billing/api"] {
			t.Errorf("seen %v", seen)
		}
	}
}

// familiesAddress changes the address of a server's node in each family.
func familiesAddress(t *testing.T, s *clusterset) {
	if network := s.shape.network(); !network.Routed {
		t.Skip("the network does not follow a node that changes its address")
	}
	for _, f := range s.shape.addressFamilies() {
		s.address(t, "c2n2", f.node+"42")
		defer s.address(t, "c2n2", f.node+"12")
	}
	for _, f := range s.shape.addressFamilies() {
		s.checkHeadless(t, f, headlessName)
		s.awaitAnswer(t, "c2", "client", "c1."+serviceName, fromCluster("c1"), f.curl)
	}
}

// familiesDynamic tests that dynamic exports behave like declared exports.
func familiesDynamic(t *testing.T, s *clusterset) {
	d := s.createExport(t)
	for _, f := range s.shape.addressFamilies() {
		for _, pod := range []string{"client", "near", "host"} {
			s.awaitAnswer(t, "c1", pod, d.service, fromCluster("c2"), f.curl)
		}
		d.checkHeadless(t, f, d.name)
	}
	s.checkObjects(t, d.namespace)
}

// dynamicExport is a namespace whose Services c2 exports with ServiceExports.
type dynamicExport struct {
	*clusterset
	namespace     string
	service, name string // of the Service with clusterset IPs, and of the headless Service
}

// createExport copies the workloads of namespace sample into a new namespace, and exports them from c2
// with kubectl.
func (s *clusterset) createExport(t *testing.T) dynamicExport {
	t.Helper()
	n := s.newNamespace(t)
	d := dynamicExport{clusterset: s, namespace: n, service: "whereami-cs." + n + ".svc.clusterset.local", name: "whereami-ss." + n + ".svc.clusterset.local"}
	text := strings.Split(workloads(t), "\n---\n")
	s.apply(t, "c2", strings.NewReplacer("THISCLUSTER", "c2", "namespace: sample", "namespace: "+n).Replace(text[2]))
	for _, name := range []string{"whereami-cs", "whereami-ss"} {
		s.must(t, export(name), "kubectl", "--context", "c2", "-n", n, "apply", "--server-side", "-f", "-")
	}
	return d
}

// newNamespace creates a namespace in both clusters that permits dynamic exports.
func (s *clusterset) newNamespace(t *testing.T) string {
	t.Helper()
	n := fmt.Sprintf("dynamic-%d", rand.Uint32())
	for _, c := range s.clusters {
		t.Cleanup(func() { s.kubectl(t, c, "delete", "namespace", n, "--ignore-not-found", "--wait=false") })
		s.apply(t, c, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+n+"}\n")
	}
	for _, c := range s.clusters {
		s.eventually(t, contains("default"), "kubectl", "--context", c, "-n", n, "get", "serviceaccount", "default")
	}
	return n
}

// podAddress returns a pod's own address of a family.
func (s *clusterset) podAddress(t *testing.T, cluster, pod string, f addressFamily) string {
	t.Helper()
	for ip := range strings.FieldsSeq(s.kubectl(t, cluster, "get", "pod", pod, "-o", "jsonpath={.status.podIPs[*].ip}")) {
		if f.matches(ip) {
			return ip
		}
	}
	t.Fatalf("%s has no address of %s", pod, f.name)
	return ""
}

// sameHost reports whether two addresses are equal after a number of bits.
func sameHost(t *testing.T, a, b string, bits int) bool {
	t.Helper()
	var hosts [2][]byte
	for i, text := range []string{a, b} {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		hosts[i] = addr.AsSlice()[bits/8:]
	}
	return slices.Equal(hosts[0], hosts[1])
}
