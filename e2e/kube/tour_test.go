//go:build kube

package kube

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	serviceName  = "whereami-cs.sample.svc.clusterset.local"
	headlessName = "whereami-ss.sample.svc.clusterset.local"
)

// answer is the JSON document that whereami returns.
type answer struct {
	Pod     string `json:"pod"`
	Node    string `json:"node"`
	Cluster string `json:"cluster"`
	Client  string `json:"client"`
}

// awaitAnswer requests a URL from a pod until want accepts the answer. options are options of curl.
func (s *clusterset) awaitAnswer(t *testing.T, cluster, pod, url string, want func(answer) bool, options ...string) answer {
	t.Helper()
	var a answer
	s.eventually(t, func(out string) bool {
		a = answer{}
		return json.Unmarshal([]byte(out), &a) == nil && want(a)
	}, inPod(cluster, pod, append([]string{"curl", "-s", "-m", "3", url}, options...)...)...)
	return a
}

// neverAnswers requests a URL from a pod for a while. No answer may contain text.
func (s *clusterset) neverAnswers(t *testing.T, cluster, pod, url, text string) {
	t.Helper()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		if out := s.must(t, "", inPod(cluster, pod, "curl", "-s", "-m", "10", url)...); strings.Contains(out, text) {
			t.Fatalf("%s: %s", url, out)
		}
	}
}

// awaitAddresses waits until a name has count addresses, and returns them sorted. With the type AAAA it
// returns IPv6 addresses.
func (s *clusterset) awaitAddresses(t *testing.T, cluster, pod, name string, count int, kind ...string) []string {
	t.Helper()
	var out []string
	s.eventually(t, func(text string) bool {
		out = strings.Fields(text)
		slices.Sort(out)
		return len(out) == count
	}, inPod(cluster, pod, append([]string{"dig", "+short", name}, kind...)...)...)
	return out
}

func fromCluster(cluster string) func(answer) bool {
	return func(a answer) bool { return a.Cluster == cluster }
}

// TestTour runs the steps of e2e/testdata/tour.txtar on real clusters with the same prefixes, with
// ordinary Deployments and StatefulSets.
func TestTour(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	t.Cleanup(func() { s.reset(t) })
	for _, step := range []struct {
		name string
		do   func(*testing.T, *clusterset)
	}{
		{"tunnels", tourTunnels}, {"service", tourService}, {"own name", tourOwnName}, {"both export", tourBoth},
		{"headless", tourHeadless}, {"scale", tourScale}, {"egress", tourEgress},
		{"broken commit", tourBroken}, {"unexport", tourUnexport},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.do(t, s) }) {
			t.FailNow() // each step depends on the previous one
		}
	}
}

// agentOn returns the agent's pod of a node.
func (s *clusterset) agentOn(t *testing.T, cluster, node string) string {
	t.Helper()
	return strings.TrimSpace(s.eventually(t, contains("hawser"), "kubectl", "--context", cluster, "-n", "hawser-system", "get", "pods",
		"--field-selector", "spec.nodeName="+node+",status.phase=Running", "-o", "jsonpath={.items[0].metadata.name}"))
}

// tourTunnels waits for the tunnels (step 1 of the tour).
func tourTunnels(t *testing.T, s *clusterset) {
	for _, c := range s.clusters {
		agent := s.agentOn(t, c, c+"n1")
		s.eventually(t, regexp.MustCompile(`link .*: wireguard \((userspace|kernel)\), connected`).MatchString,
			inPod(c, "hawser-system/"+agent, "/hawser-agent", "status")...)
	}
}

// tourService reaches a service of c2 by name from c1 (step 2): its clusterset IP and all three pods. The
// server sees the pod's own global address, with the same host part.
func tourService(t *testing.T, s *clusterset) {
	vip := s.awaitAddresses(t, "c1", "client", serviceName, 1)[0]
	if !strings.HasPrefix(vip, "243.0.") {
		t.Errorf("clusterset IP %s", vip)
	}
	a := s.awaitAnswer(t, "c1", "client", serviceName, fromCluster("c2"))
	own := strings.TrimSpace(s.kubectl(t, "c1", "get", "pod", "client", "-o", "jsonpath={.status.podIP}"))
	if seen, pod := strings.SplitN(a.Client, ".", 3), strings.SplitN(own, ".", 3); seen[0] != "242" || len(seen) != 3 || seen[2] != pod[2] {
		t.Errorf("pod %s was seen as %s", own, a.Client)
	}
	pods := map[string]bool{}
	loop := `for i in $(seq 60); do curl -s -m 10 ` + serviceName + `; done`
	for line := range strings.Lines(s.must(t, "", inPod("c1", "client", "sh", "-c", loop)...)) {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		pods[a.Pod] = true
	}
	if len(pods) != 3 {
		t.Errorf("sixty calls reached %v", pods)
	}
	s.eventually(t, contains(" 0% packet loss"), inPod("c1", "client", "ping", "-c", "2", "-W", "5", serviceName)...)
}

// tourOwnName uses the name of one cluster's export (step 3). c1 has no export yet.
func tourOwnName(t *testing.T, s *clusterset) {
	s.awaitAnswer(t, "c1", "client", "c2."+serviceName, fromCluster("c2"))
	s.eventually(t, contains("NXDOMAIN"), inPod("c1", "client", "dig", "c1."+serviceName)...)
}

// tourBoth exports the service from c1 too. The local cluster is preferred; with policy spread both
// answer.
func tourBoth(t *testing.T, s *clusterset) {
	s.edit(t, "name: whereami-cs\n    namespace: sample\n    clusters: [c2]", "name: whereami-cs\n    namespace: sample\n    clusters: [c1, c2]")
	out, err := s.try(context.Background(), s.path("repo"), "", "hawser", "diff", "--image", "hawser.dev/hawser-agent:lab")
	if err == nil || !strings.Contains(out, "sample/whereami-cs") || !strings.Contains(out, "Plan: ") {
		t.Fatalf("hawser diff: %v\n%s", err, out)
	}
	s.sync(t)
	s.awaitAnswer(t, "c1", "client", serviceName, fromCluster("c1"))
	s.neverAnswers(t, "c1", "client", serviceName, `"cluster":"c2"`)
	s.change(t, "policy: local-first", "policy: spread")
	s.awaitAnswer(t, "c1", "client", serviceName, fromCluster("c2"))
	s.awaitAnswer(t, "c1", "client", serviceName, fromCluster("c1"))
	if out := s.must(t, "", "sh", "-c", "cd "+s.path("repo")+" && hawser diff --image hawser.dev/hawser-agent:lab"); !strings.Contains(out, "No changes") {
		t.Errorf("hawser diff: %s", out)
	}
}

// tourHeadless tests a headless service (step 4): each ready pod has a global address and a name. The pod
// uses the same address as source.
func tourHeadless(t *testing.T, s *clusterset) {
	for _, a := range s.awaitAddresses(t, "c1", "client", headlessName, 3) {
		if !strings.HasPrefix(a, "242.2.0.") {
			t.Errorf("pod's address %s", a)
		}
	}
	name := "whereami-0.c2." + headlessName
	own := s.awaitAddresses(t, "c1", "client", name, 1)[0]
	s.awaitAnswer(t, "c1", "client", name, func(a answer) bool { return a.Pod == "whereami-0" && a.Cluster == "c2" })
	// The pod has no tools, so the request is sent from its network namespace.
	argv := append(s.podNetwork(t, "c2", "sample/whereami-0"), "curl", "-s", "-m", "10", s.awaitAddresses(t, "c2", "client", "c1."+serviceName, 1)[0])
	out := s.must(t, "", argv...)
	if !strings.Contains(out, `"client":"`+own+`"`) {
		t.Errorf("whereami-0 has %s, was seen as %s", own, out)
	}
}

// tourScale scales to 2 and back. The answers change, and no address moves.
func tourScale(t *testing.T, s *clusterset) {
	all := s.awaitAddresses(t, "c1", "client", headlessName, 3)
	s.kubectl(t, "c2", "-n", "sample", "scale", "statefulset/whereami", "--replicas=2")
	s.awaitAddresses(t, "c1", "client", headlessName, 2)
	s.eventually(t, contains("NXDOMAIN"), inPod("c1", "client", "dig", "whereami-2.c2."+headlessName)...)
	s.kubectl(t, "c2", "-n", "sample", "scale", "statefulset/whereami", "--replicas=3")
	if again := s.awaitAddresses(t, "c1", "client", headlessName, 3); !slices.Equal(again, all) {
		t.Errorf("addresses were %v, are %v", all, again)
	}
	s.awaitAnswer(t, "c1", "client", "whereami-2.c2."+headlessName, func(a answer) bool { return a.Pod == "whereami-2" })
}

// tourEgress tests the order of egress rules in c2 (step 5): a rule with a selector, a rule for the
// namespace, the cluster's shared addresses. Nodes use the shared addresses.
func tourEgress(t *testing.T, s *clusterset) {
	seen := map[string]string{}
	for _, pod := range []string{"billing/db", "billing/api", "client", "host"} {
		a := s.awaitAnswer(t, "c2", pod, "c1."+serviceName, func(a answer) bool { return strings.HasPrefix(a.Client, "242.2.0.") })
		seen[pod] = a.Client
	}
	lock := s.must(t, "", "cat", s.path("tree/clusterset.lock.yaml"))
	if !strings.Contains(lock, "clusters[c2].egress[billing-db]: ["+seen["billing/db"]+"]") ||
		!strings.Contains(lock, "clusters[c2].egress[billing]: ["+seen["billing/api"]+"]") {
		t.Errorf("seen %v, allocated:\n%s", seen, lock)
	}
	if seen["client"] == seen["billing/db"] || seen["client"] == seen["billing/api"] {
		t.Errorf("seen %v", seen)
	}
}

// tourBroken commits a broken topology (steps 7 and 8), which is reported and changes nothing. The next
// good commit is published.
func tourBroken(t *testing.T, s *clusterset) {
	published := s.must(t, "", "git", "-C", s.path("repo"), "rev-parse", "rendered")
	good := s.must(t, "", "cat", s.path("repo/clusterset.yaml"))
	s.write(t, strings.Replace(good, "podCIDRs: [10.7.0.0/16]", "podCIDRs: [10.7.0.1/16]", 1))
	s.commit(t)
	out, err := s.publish(context.Background())
	if err == nil || !regexp.MustCompile(`clusterset.yaml:\d+:\d+: error: .*10\.7\.0\.1/16`).MatchString(out) {
		t.Fatalf("publish: %v\n%s", err, out)
	}
	if now := s.must(t, "", "git", "-C", s.path("repo"), "rev-parse", "rendered"); now != published {
		t.Errorf("published %s after %s", now, published)
	}
	s.awaitAnswer(t, "c1", "client", "c2."+serviceName, fromCluster("c2"))
	s.write(t, good)
	s.sync(t)
	s.awaitAnswer(t, "c1", "client", "c2."+serviceName, fromCluster("c2"))
}

// tourUnexport removes the export, and with it the name.
func tourUnexport(t *testing.T, s *clusterset) {
	topology := s.must(t, "", "cat", s.path("repo/clusterset.yaml"))
	item := regexp.MustCompile(`(?ms)^  - name: whereami-cs\n.*?(^  - )`)
	s.write(t, item.ReplaceAllString(topology, "$1"))
	s.sync(t)
	s.eventually(t, contains("NXDOMAIN"), inPod("c1", "client", "dig", serviceName)...)
}
