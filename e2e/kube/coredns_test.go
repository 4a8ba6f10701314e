//go:build kube

package kube

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestClusterDNS tests that the cluster's CoreDNS forwards the domain to the agents after its
// configuration is reloaded, edited, rolled back or damaged. Without Hawser's block the configuration
// is unchanged, byte for byte.
func TestClusterDNS(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	t.Cleanup(func() { s.reset(t) })
	d := coreDNS{clusterset: s, t: t}
	plain := d.awaitBlock()
	d.awaitResolution()

	s.kubectl(t, "c1", "-n", "kube-system", "rollout", "restart", "deployment/coredns")
	s.kubectl(t, "c1", "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout="+conditionTimeout.String())
	d.awaitResolution()

	// A user adds a server, which stays.
	const theirs = "example.org:53 {\n    whoami\n}\n"
	d.write(d.corefile() + theirs)
	if rest := d.awaitBlock(); rest != plain+theirs {
		t.Errorf("the agents changed foreign blocks:\n%s", rest)
	}
	d.awaitResolution()

	// A user rolls back to the configuration before Hawser.
	d.write(plain)
	d.awaitBlock()
	d.awaitResolution()

	// The end mark is missing: the agents change nothing and report the next step.
	damaged := strings.Replace(d.corefile(), "# hawser: end\n", "", 1)
	d.write(damaged)
	s.eventually(t, contains("the begin mark has no end mark after it"), "kubectl", "--context", "c1", "get", "hawsernode", "c1n1", "-o", "jsonpath={.status.problems[?(@.code==\"dns-not-configured\")].text}")
	if d.corefile() != damaged {
		t.Error("a damaged block was touched")
	}
	d.write(plain)
	d.awaitBlock()

	// The topology leaves the DNS configuration to the user.
	s.change(t, "  - name: c1\n", "  - name: c1\n    dns: none\n")
	s.eventually(t, func(out string) bool { return out == plain }, d.readCommand()...)
	// Nodes still resolve names, and pods do not: verify fails and names the cause.
	s.eventually(t, func(out string) bool {
		return strings.Contains(out, "code 1") && strings.Contains(out, "\nc1/c1n2: 2 of 2 names answered\n") && strings.Contains(out, "\npod on c1/c1n2: 0 of 2 names answered\n") &&
			strings.Contains(out, "pods of c1 use the cluster's DNS, which does not forward names to the agents")
	}, "sh", "-c", "hawser verify --cluster c1,c2 --export sample/whereami-cs; echo code $?")
	s.reset(t)
	d.awaitBlock()
	d.awaitResolution()
}

// coreDNS is the CoreDNS of cluster c1 and its Corefile.
type coreDNS struct {
	*clusterset
	t *testing.T
}

func (d coreDNS) readCommand() []string {
	return []string{"kubectl", "--context", "c1", "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}"}
}

func (d coreDNS) corefile() string { return d.must(d.t, "", d.readCommand()...) }

func (d coreDNS) write(text string) {
	d.t.Helper()
	raw, err := json.Marshal(map[string]any{"data": map[string]string{"Corefile": text}})
	if err != nil {
		d.t.Fatal(err)
	}
	d.kubectl(d.t, "c1", "-n", "kube-system", "patch", "configmap", "coredns", "--type=merge", "-p", string(raw))
}

// awaitBlock waits until the Corefile has a complete Hawser block, and returns the rest of the Corefile.
func (d coreDNS) awaitBlock() string {
	d.t.Helper()
	rest := ""
	d.eventually(d.t, func(out string) bool {
		before, ours, begins := strings.Cut(out, "# hawser: begin")
		_, after, ends := strings.Cut(ours, "# hawser: end\n")
		rest = before + after
		return begins && ends
	}, d.readCommand()...)
	return rest
}

// awaitResolution waits until a pod resolves an export's name and address through the cluster's DNS.
func (d coreDNS) awaitResolution() {
	d.t.Helper()
	d.eventually(d.t, contains("243.0."), inPod("c1", "client", "dig", "+short", "whereami-cs.sample.svc.clusterset.local")...)
	d.eventually(d.t, contains("whereami-cs.sample.svc.clusterset.local."), inPod("c1", "client", "sh", "-c",
		"dig +short -x $(dig +short whereami-cs.sample.svc.clusterset.local)")...)
}
