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
	service  = "whereami-cs.sample.svc.clusterset.local"
	headless = "whereami-ss.sample.svc.clusterset.local"
)

// answer is the answer of whereami.
type answer struct {
	Pod     string `json:"pod"`
	Node    string `json:"node"`
	Cluster string `json:"cluster"`
	Client  string `json:"client"`
}

// ask requests a URL from a pod until the answer is wanted. options are further options of curl.
func (s *set) ask(t *testing.T, cluster, pod, url string, want func(answer) bool, options ...string) answer {
	t.Helper()
	var a answer
	s.eventually(t, func(out string) bool {
		a = answer{}
		return json.Unmarshal([]byte(out), &a) == nil && want(a)
	}, within(cluster, pod, append([]string{"curl", "-s", "-m", "3", url}, options...)...)...)
	return a
}

// never requests a URL from a pod for a while. No answer may contain text.
func (s *set) never(t *testing.T, cluster, pod, url, text string) {
	t.Helper()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		if out := s.must(t, "", within(cluster, pod, "curl", "-s", "-m", "10", url)...); strings.Contains(out, text) {
			t.Fatalf("%s: %s", url, out)
		}
	}
}

// dig waits until a name has count addresses, and returns them sorted. With the type AAAA it returns
// IPv6 addresses.
func (s *set) dig(t *testing.T, cluster, pod, name string, count int, kind ...string) []string {
	t.Helper()
	var out []string
	s.eventually(t, func(text string) bool {
		out = strings.Fields(text)
		slices.Sort(out)
		return len(out) == count
	}, within(cluster, pod, append([]string{"dig", "+short", name}, kind...)...)...)
	return out
}

func from(cluster string) func(answer) bool {
	return func(a answer) bool { return a.Cluster == cluster }
}

// TestTour is the walk of e2e/testdata/tour.txtar on real clusters with the same
// prefixes, with ordinary Deployments and StatefulSets.
func TestTour(t *testing.T) {
	s := needSet(t, same)
	t.Cleanup(func() { s.reset(t) })
	for _, step := range []struct {
		name string
		do   func(*testing.T, *set)
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
func (s *set) agentOn(t *testing.T, cluster, node string) string {
	t.Helper()
	return strings.TrimSpace(s.eventually(t, has("hawser"), "kubectl", "--context", cluster, "-n", "hawser-system", "get", "pods",
		"--field-selector", "spec.nodeName="+node+",status.phase=Running", "-o", "jsonpath={.items[0].metadata.name}"))
}

// 1. The tunnels come up.
func tourTunnels(t *testing.T, s *set) {
	for _, c := range s.clusters {
		agent := s.agentOn(t, c, c+"n1")
		s.eventually(t, regexp.MustCompile(`link .*: wireguard \((userspace|kernel)\), connected`).MatchString,
			within(c, "hawser-system/"+agent, "/hawser-agent", "status")...)
	}
}

// 2. A service of c2 by name from c1: the clusterset IP, all three pods, and a client
// that is the pod's own global address, with the same host part.
func tourService(t *testing.T, s *set) {
	vip := s.dig(t, "c1", "client", service, 1)[0]
	if !strings.HasPrefix(vip, "243.0.") {
		t.Errorf("clusterset IP %s", vip)
	}
	a := s.ask(t, "c1", "client", service, from("c2"))
	own := strings.TrimSpace(s.kubectl(t, "c1", "get", "pod", "client", "-o", "jsonpath={.status.podIP}"))
	if seen, pod := strings.SplitN(a.Client, ".", 3), strings.SplitN(own, ".", 3); seen[0] != "242" || len(seen) != 3 || seen[2] != pod[2] {
		t.Errorf("pod %s was seen as %s", own, a.Client)
	}
	pods := map[string]bool{}
	loop := `for i in $(seq 60); do curl -s -m 10 ` + service + `; done`
	for line := range strings.Lines(s.must(t, "", within("c1", "client", "sh", "-c", loop)...)) {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		pods[a.Pod] = true
	}
	if len(pods) != 3 {
		t.Errorf("sixty calls reached %v", pods)
	}
	s.eventually(t, has(" 0% packet loss"), within("c1", "client", "ping", "-c", "2", "-W", "5", service)...)
}

// 3. The cluster's own name pins it; in c1 there is no export yet.
func tourOwnName(t *testing.T, s *set) {
	s.ask(t, "c1", "client", "c2."+service, from("c2"))
	s.eventually(t, has("NXDOMAIN"), within("c1", "client", "dig", "c1."+service)...)
}

// Exported from c1 too: the local cluster is preferred; spread: both answer.
func tourBoth(t *testing.T, s *set) {
	s.edit(t, "name: whereami-cs\n    namespace: sample\n    clusters: [c2]", "name: whereami-cs\n    namespace: sample\n    clusters: [c1, c2]")
	out, err := s.try(context.Background(), s.path("repo"), "", "hawser", "diff", "--image", "hawser.dev/hawser-agent:lab")
	if err == nil || !strings.Contains(out, "sample/whereami-cs") || !strings.Contains(out, "Plan: ") {
		t.Fatalf("hawser diff: %v\n%s", err, out)
	}
	s.sync(t)
	s.ask(t, "c1", "client", service, from("c1"))
	s.never(t, "c1", "client", service, `"cluster":"c2"`)
	s.change(t, "policy: local-first", "policy: spread")
	s.ask(t, "c1", "client", service, from("c2"))
	s.ask(t, "c1", "client", service, from("c1"))
	if out := s.must(t, "", "sh", "-c", "cd "+s.path("repo")+" && hawser diff --image hawser.dev/hawser-agent:lab"); !strings.Contains(out, "No changes") {
		t.Errorf("hawser diff: %s", out)
	}
}

// 4. Headless: one global address for each ready pod, and a name for each. That pod
// itself goes out with that same address.
func tourHeadless(t *testing.T, s *set) {
	for _, a := range s.dig(t, "c1", "client", headless, 3) {
		if !strings.HasPrefix(a, "242.2.0.") {
			t.Errorf("pod's address %s", a)
		}
	}
	name := "whereami-0.c2." + headless
	own := s.dig(t, "c1", "client", name, 1)[0]
	s.ask(t, "c1", "client", name, func(a answer) bool { return a.Pod == "whereami-0" && a.Cluster == "c2" })
	// The pod has no tools, so the question is asked within its network.
	argv := append(s.podNetwork(t, "c2", "sample/whereami-0"), "curl", "-s", "-m", "10", s.dig(t, "c2", "client", "c1."+service, 1)[0])
	out := s.must(t, "", argv...)
	if !strings.Contains(out, `"client":"`+own+`"`) {
		t.Errorf("whereami-0 has %s, was seen as %s", own, out)
	}
}

// Scaling to 2 and back changes the answers, and no address moves.
func tourScale(t *testing.T, s *set) {
	all := s.dig(t, "c1", "client", headless, 3)
	s.kubectl(t, "c2", "-n", "sample", "scale", "statefulset/whereami", "--replicas=2")
	s.dig(t, "c1", "client", headless, 2)
	s.eventually(t, has("NXDOMAIN"), within("c1", "client", "dig", "whereami-2.c2."+headless)...)
	s.kubectl(t, "c2", "-n", "sample", "scale", "statefulset/whereami", "--replicas=3")
	if again := s.dig(t, "c1", "client", headless, 3); !slices.Equal(again, all) {
		t.Errorf("addresses were %v, are %v", all, again)
	}
	s.ask(t, "c1", "client", "whereami-2.c2."+headless, func(a answer) bool { return a.Pod == "whereami-2" })
}

// 5. In c2 a rule with a selector goes before one for the namespace, that before what
// the cluster shares; a node is among those too.
func tourEgress(t *testing.T, s *set) {
	seen := map[string]string{}
	for _, pod := range []string{"billing/db", "billing/api", "client", "host"} {
		a := s.ask(t, "c2", pod, "c1."+service, func(a answer) bool { return strings.HasPrefix(a.Client, "242.2.0.") })
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

// 7, 8. A broken commit changes nothing and is reported; the next good one is published.
func tourBroken(t *testing.T, s *set) {
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
	s.ask(t, "c1", "client", "c2."+service, from("c2"))
	s.write(t, good)
	s.sync(t)
	s.ask(t, "c1", "client", "c2."+service, from("c2"))
}

// The export is removed: the name is gone.
func tourUnexport(t *testing.T, s *set) {
	topology := s.must(t, "", "cat", s.path("repo/clusterset.yaml"))
	item := regexp.MustCompile(`(?ms)^  - name: whereami-cs\n.*?(^  - )`)
	s.write(t, item.ReplaceAllString(topology, "$1"))
	s.sync(t)
	s.eventually(t, has("NXDOMAIN"), within("c1", "client", "dig", service)...)
}
