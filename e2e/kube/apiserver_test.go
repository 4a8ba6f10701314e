//go:build kube

package kube

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestAPIServerKilled kills the API servers of both clusters. Connections survive, and new ones work.
// Agents of a worker, of a server's node and of a gateway start from disk. After the API servers
// return, changes arrive in the other cluster.
func TestAPIServerKilled(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	all := s.awaitAddresses(t, "c1", "client", headlessName, 3)
	target := s.awaitAddresses(t, "c1", "client", "traffic.sample.svc.clusterset.local", 1)[0] + ":7000"
	client, near := s.podNetwork(t, "c1", "client"), s.podNetwork(t, "c1", "near")
	kept := s.startStream(t, client, "tcp", "--count", "20", "--patience", "2m", "--open", "60s", target)
	fresh := s.startStream(t, near, "new", "--rate", "5", "--timeout", "30s", target)
	for _, c := range s.clusters {
		s.kubelab(t, "kill", c+"cp", "kube-apiserver")
		t.Cleanup(func() {
			_, _ = s.try(context.Background(), "", "", "kubelab", "--dir", s.clusterPair.dir, "revive", c+"cp", "kube-apiserver")
		})
	}
	for _, node := range []string{"c1n1", "c1n2", "c2n2"} {
		s.eventually(t, contains("from last good copy"), s.agentCommand(node)...)
	}
	for _, node := range []string{"c1n2", "c2n2"} {
		s.restartAgent(t, node)
	}
	if r := fresh(); r.Failed > 0 || r.Attempts == 0 {
		t.Errorf("%d of %d connections failed: %s", r.Failed, r.Attempts, r.FirstError)
	}
	// In the lab the agent runs the gateway's tunnel, so traffic waits while the agent restarts.
	s.restartAgent(t, "c1n1")
	fresh = s.startStream(t, near, "new", "--rate", "5", "--count", "10", "--timeout", "60s", target)
	if r := fresh(); r.Failed > 0 || r.Attempts == 0 {
		t.Errorf("after the gateway's agent: %d of %d connections failed: %s", r.Failed, r.Attempts, r.FirstError)
	}

	for _, c := range s.clusters {
		s.kubelab(t, "revive", c+"cp", "kube-apiserver")
	}
	s.eventually(t, contains("scaled"), "kubectl", "--context", "c2", "-n", "sample", "scale", "statefulset/whereami", "--replicas=2")
	s.awaitAddresses(t, "c1", "client", headlessName, 2)
	s.kubectl(t, "c2", "-n", "sample", "scale", "statefulset/whereami", "--replicas=3")
	if again := s.awaitAddresses(t, "c1", "client", headlessName, 3); strings.Join(again, " ") != strings.Join(all, " ") {
		t.Errorf("addresses were %v, are %v", all, again)
	}
	for _, node := range []string{"c1n1", "c1n2", "c2n2"} {
		s.eventually(t, func(out string) bool { return !strings.Contains(out, "last good copy") }, s.agentCommand(node)...)
	}
	s.checkSurvivors(t, kept())
}

// checkSurvivors fails the test if a connection of a stream has ended, or if the stream is empty.
func (s *clusterset) checkSurvivors(t *testing.T, r streamReport) {
	t.Helper()
	if r.Survivors != r.Connections || r.Connections == 0 {
		t.Errorf("%d of %d connections live: %d resets, %d timeouts", r.Survivors, r.Connections, r.Resets, r.Timeouts)
	}
}

// kubelab runs kubelab.
func (s *clusterset) kubelab(t *testing.T, args ...string) string {
	t.Helper()
	return s.must(t, "", append([]string{"kubelab", "--dir", s.clusterPair.dir}, args...)...)
}

// agentCommand returns the command that reads an agent's status on its node, without the cluster's API.
func (s *clusterset) agentCommand(node string, args ...string) []string {
	return append([]string{"kubelab", "--dir", s.clusterPair.dir, "node", node, "hawser-agent", "status"}, args...)
}

// restartAgent kills a node's agent and waits until the next one is ready, from disk if necessary.
func (s *clusterset) restartAgent(t *testing.T, node string) {
	t.Helper()
	processes := []string{"kubelab", "--dir", s.clusterPair.dir, "node", node, "sh", "-c",
		// Only the agent itself: tunnel processes have another command.
		`for p in $(pidof hawser-agent); do tr '\0' ' ' </proc/$p/cmdline | grep -q ' run ' && echo $p; done`}
	before := s.must(t, "", processes...)
	s.kubelab(t, "node", node, "sh", "-c", "kill -KILL $0", strings.TrimSpace(before))
	s.eventually(t, func(out string) bool { return out != "" && out != before }, processes...)
	s.eventually(t, contains("ready: true"), s.agentCommand(node)...)
}

// streamReport is hawser-traffic's report of connections.
type streamReport struct {
	Connections, Survivors, Resets, Timeouts int
	Attempts, Failed                         int
	FirstError                               json.RawMessage
}

// netCommand is a command that runs the program in its arguments in the network of a pod.
type netCommand []string

// startStream starts traffic in the network of a pod, without the cluster's API, and returns when it
// flows. The returned function ends it.
func (s *clusterset) startStream(t *testing.T, in netCommand, kind string, args ...string) func() streamReport {
	t.Helper()
	dir := t.TempDir()
	argv := append([]string{"hawser-traffic", kind, "--for", "15m", "--until", dir + "/until", "--ready", dir + "/ready"}, args...)
	var o trafficOutput
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.out, o.err = s.try(context.Background(), "", "", slices.Concat(in, argv)...)
	}()
	end := func() {
		_ = os.WriteFile(dir+"/until", nil, 0o600) // otherwise it ends by itself
		<-done
	}
	t.Cleanup(end)
	s.eventually(t, contains(""), "test", "-e", dir+"/ready")
	return func() (r streamReport) {
		t.Helper()
		end()
		from := strings.Index(o.out, "{")
		if o.err != nil || from < 0 {
			t.Fatalf("%v\n%s", o.err, o.out)
		}
		if err := json.Unmarshal([]byte(o.out[from:]), &r); err != nil {
			t.Fatalf("%v\n%s", err, o.out)
		}
		return r
	}
}

// podNetwork returns the command that runs a program of the pod's node in the network of a pod
// (namespace/name, or a name in namespace default).
func (s *clusterset) podNetwork(t *testing.T, cluster, pod string) netCommand {
	t.Helper()
	namespace, name, ok := strings.Cut(pod, "/")
	if !ok {
		namespace, name = "default", pod
	}
	where := strings.Fields(s.kubectl(t, cluster, "-n", namespace, "get", "pod", name, "-o", "jsonpath={.spec.nodeName} {.status.podIP}"))
	on := []string{"kubelab", "--dir", s.clusterPair.dir, "node", s.machine(where[0])}
	find := `for ns in /run/netns/*; do nsenter --net=$ns ip -o address show dev eth0 2>/dev/null | grep -q " $0/" && echo $ns; done; true`
	space := s.eventually(t, contains("/run/netns/"), slices.Concat(on, []string{"sh", "-c", find, where[1]})...)
	return slices.Concat(on, netCommand{"nsenter", "--net=" + strings.TrimSpace(space)})
}

// machine returns the machine of a node. Its name differs only for renamed nodes.
func (s *clusterset) machine(node string) string {
	if machine, ok := s.renamed[node]; ok {
		return machine
	}
	return node
}
