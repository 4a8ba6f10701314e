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

// addressing is one family as the clusters of the tests have it.
type addressing struct {
	name   string // as the Kubernetes API calls it
	record string // of DNS
	curl   string // its option
	pods   int    // length of the cluster's prefix of pods
	global string // begins every global address
	shared string // prefix of the shared addresses of c2
	vip    string // begins every clusterset IP
	node   string // begins the addresses of c2's nodes
}

func (of shape) each() []addressing {
	four := addressing{"IPv4", "A", "-4", 16, "242.", "242.2.0.", "243.0.", "172.31.2."}
	six := addressing{"IPv6", "AAAA", "-6", 56, "fd7f:1:1:", "fd7f:1:1:2::", "fd", "fd00:172:31:2::"}
	switch of.families {
	case "dual":
		return []addressing{four, six}
	case "ipv6":
		return []addressing{six}
	}
	return []addressing{four}
}

// is says whether an address is of the family.
func (f addressing) is(addr string) bool { return strings.Contains(addr, ":") == (f.name == "IPv6") }

// TestDualStack: two clusters with the same prefixes of both families, of real
// Deployments and StatefulSets; all that is exported is reached over each of them.
func TestDualStack(t *testing.T) { walkFamilies(t, dual) }

// TestIPv6Only: the same without any address of IPv4, between the gateways too.
func TestIPv6Only(t *testing.T) { walkFamilies(t, six) }

func walkFamilies(t *testing.T, of shape) {
	s := needSet(t, of)
	defer s.down()
	for _, step := range []struct {
		name string
		do   func(*testing.T, *set)
	}{
		{"tunnels", tourTunnels}, {"service", familiesService}, {"objects", func(t *testing.T, s *set) { s.objectsOf(t, "sample") }},
		{"egress", familiesEgress}, {"headless", familiesHeadless}, {"address", familiesAddress}, {"dynamic", familiesDynamic},
		{"uninstall", func(t *testing.T, s *set) { s.uninstall(t) }},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.do(t, s) }) {
			t.FailNow() // each step depends on the previous one
		}
	}
}

// A service of c2 from pods of c1 and from a node: the name has an address of each
// family, which has the name, and a pod goes out as its own global address.
func familiesService(t *testing.T, s *set) {
	for _, f := range s.shape.each() {
		vip := s.dig(t, "c1", "client", service, 1, f.record)[0]
		if !strings.HasPrefix(vip, f.vip) {
			t.Errorf("clusterset IP %s", vip)
		}
		s.eventually(t, has(service+"."), within("c1", "client", "dig", "+short", "-x", vip)...)
		for _, pod := range []string{"client", "near", "host"} {
			s.ask(t, "c1", pod, service, from("c2"), f.curl)
		}
		a := s.ask(t, "c1", "client", service, from("c2"), f.curl)
		if own := s.podAddress(t, "c1", "client", f); !strings.HasPrefix(a.Client, f.global) || !sameHost(t, own, a.Client, f.pods) {
			t.Errorf("pod %s was seen as %s", own, a.Client)
		}
		s.eventually(t, has(" 0% packet loss"), within("c1", "client", "ping", f.curl, "-c", "2", "-W", "5", service)...)
		// What the cluster had before, it still has.
		s.ask(t, "c1", "client", "whereami-cs.sample", from("c1"), f.curl)
	}
	if s.shape == six {
		s.eventually(t, func(out string) bool { return has("NOERROR")(out) && has("ANSWER: 0")(out) }, within("c1", "client", "dig", service, "A")...)
	}
}

// A headless service: an address of each family for every pod, and names that lead to
// the pods over each; a pod goes out as what it is reached by.
func familiesHeadless(t *testing.T, s *set) {
	for _, f := range s.shape.each() {
		own := s.headless(t, f, headless)
		// The pod has no tools, so the question is asked within its network.
		there, err := netip.ParseAddr(s.dig(t, "c2", "client", "c1."+service, 1, f.record)[0])
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

// headless checks a headless service of c2 with three pods from c1, and returns the address of the
// first pod.
func (s *set) headless(t *testing.T, f addressing, name string) string {
	t.Helper()
	all := s.dig(t, "c1", "client", name, 3, f.record)
	for i := range 3 {
		pod := fmt.Sprintf("whereami-%d", i)
		own := s.dig(t, "c1", "client", pod+".c2."+name, 1, f.record)[0]
		if !slices.Contains(all, own) || !strings.HasPrefix(own, f.shared) {
			t.Errorf("%s has %s, all are %v", pod, own, all)
		}
		s.ask(t, "c1", "client", pod+".c2."+name, func(a answer) bool { return a.Pod == pod && a.Cluster == "c2" }, f.curl)
	}
	return s.dig(t, "c1", "client", "whereami-0.c2."+name, 1, f.record)[0]
}

// objectsOf checks c1's objects for the exports of a namespace of c2: clusterset IPs of each family,
// and slices of each with the addresses of c2.
func (s *set) objectsOf(t *testing.T, namespace string) {
	t.Helper()
	var names, families []string
	for _, f := range s.shape.each() {
		families = append(families, f.name)
		names = append(names, s.dig(t, "c1", "client", "whereami-cs."+namespace+".svc.clusterset.local", 1, f.record)...)
	}
	want := fmt.Sprintf("%s %s", jsonOf(names), jsonOf(families))
	s.eventually(t, func(out string) bool { return out == want }, "kubectl", "--context", "c1", "-n", namespace, "get", "serviceimport", "whereami-cs",
		"-o", "jsonpath={.spec.ips} {.spec.ipFamilies}")
	for name, endpoints := range map[string]int{"whereami-cs": 1, "whereami-ss": 3} {
		s.eventually(t, func(out string) bool {
			var list addressedSlices
			return json.Unmarshal([]byte(out), &list) == nil && list.wrong(s.shape, endpoints) == ""
		}, "kubectl", "--context", "c1", "-n", namespace, "get", "endpointslices", "-l", ofImport+"="+name, "-o", "json")
	}
}

type addressedSlices struct{ Items []addressedSlice }

type addressedSlice struct {
	AddressType string
	Endpoints   []struct{ Addresses []string }
}

// wrong describes wrong slices, which should have a number of c2's endpoints in each family.
func (l addressedSlices) wrong(of shape, endpoints int) string {
	if have := len(l.Items); have != len(of.each()) {
		return fmt.Sprintf("%d slices", have)
	}
	for _, f := range of.each() {
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

// c1 exports too; pods of c2 go out as their rules say, and as what the cluster shares.
func familiesEgress(t *testing.T, s *set) {
	s.change(t, "name: whereami-cs\n    namespace: sample\n    clusters: [c2]", "name: whereami-cs\n    namespace: sample\n    clusters: [c1, c2]")
	lock := s.must(t, "", "cat", s.path("tree/clusterset.lock.yaml"))
	for _, f := range s.shape.each() {
		seen := map[string]string{}
		for _, pod := range []string{"billing/db", "billing/api", "client", "host"} {
			a := s.ask(t, "c2", pod, "c1."+service, func(a answer) bool { return strings.HasPrefix(a.Client, f.shared) }, f.curl)
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

// The node that is served has another address of each family.
func familiesAddress(t *testing.T, s *set) {
	if network := s.shape.network(); !network.Routed {
		t.Skip("the network does not follow a node that changes its address")
	}
	for _, f := range s.shape.each() {
		s.address(t, "c2n2", f.node+"42")
		defer s.address(t, "c2n2", f.node+"12")
	}
	for _, f := range s.shape.each() {
		s.headless(t, f, headless)
		s.ask(t, "c2", "client", "c1."+service, from("c1"), f.curl)
	}
}

// Dynamic exports behave like exports of the topology.
func familiesDynamic(t *testing.T, s *set) {
	d := s.exportThere(t)
	for _, f := range s.shape.each() {
		for _, pod := range []string{"client", "near", "host"} {
			s.ask(t, "c1", pod, d.service, from("c2"), f.curl)
		}
		d.headless(t, f, d.name)
	}
	s.objectsOf(t, d.namespace)
}

// dynamic is a namespace whose Services c2 exports by itself.
type dynamic struct {
	*set
	namespace     string
	service, name string // of the one with clusterset IPs, and of the headless one
}

// exportThere puts what namespace sample has into a new one, and exports it from c2
// with kubectl.
func (s *set) exportThere(t *testing.T) dynamic {
	t.Helper()
	n := s.someNamespace(t)
	d := dynamic{set: s, namespace: n, service: "whereami-cs." + n + ".svc.clusterset.local", name: "whereami-ss." + n + ".svc.clusterset.local"}
	text := strings.Split(workloads(t), "\n---\n")
	s.apply(t, "c2", strings.NewReplacer("THISCLUSTER", "c2", "namespace: sample", "namespace: "+n).Replace(text[2]))
	for _, name := range []string{"whereami-cs", "whereami-ss"} {
		s.must(t, export(name), "kubectl", "--context", "c2", "-n", n, "apply", "--server-side", "-f", "-")
	}
	return d
}

// someNamespace makes a namespace in both clusters whose Services clusters may export.
func (s *set) someNamespace(t *testing.T) string {
	t.Helper()
	n := fmt.Sprintf("dynamic-%d", rand.Uint32())
	for _, c := range s.clusters {
		t.Cleanup(func() { s.kubectl(t, c, "delete", "namespace", n, "--ignore-not-found", "--wait=false") })
		s.apply(t, c, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+n+"}\n")
	}
	for _, c := range s.clusters {
		s.eventually(t, has("default"), "kubectl", "--context", c, "-n", n, "get", "serviceaccount", "default")
	}
	return n
}

// podAddress returns a pod's own address of a family.
func (s *set) podAddress(t *testing.T, cluster, pod string, f addressing) string {
	t.Helper()
	for ip := range strings.FieldsSeq(s.kubectl(t, cluster, "get", "pod", pod, "-o", "jsonpath={.status.podIPs[*].ip}")) {
		if f.is(ip) {
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
