//go:build kube

package kube

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/nodeagent/status"
)

// TestVerifyFailover tests hawser verify --failover on the used one of two gateways of c1. The report
// has no lost request and no broken connection, and the gateway is undrained afterwards, also after
// SIGINT.
func TestVerifyFailover(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	t.Cleanup(func() { s.reset(t) })
	s.change(t, "      endpoints: [172.31.1.11]\n", `      endpoints: [172.31.1.11]
    - name: c1-b
      node: c1n2
      endpoints: [172.31.1.12]
`)
	nodes := map[string]string{"c1-a": "c1n1", "c1-b": "c1n2"}
	linked := func(out string) bool {
		return strings.Contains(out, "c1-a") && strings.Contains(out, "c1-b")
	}
	s.eventually(t, linked, "sh", "-c", "kubectl --context c2 -n hawser-system exec ds/hawser-gateway -- /hawser-agent status | grep connected")
	s.awaitReady(t)
	s.awaitAnswer(t, "c1", "client", serviceName, fromCluster("c2"))
	used := s.usedGateway(t, nodes)
	t.Logf("paths use c1/%s", used)

	drill := []string{"hawser", "verify", "--failover", "c1/" + used, "--cluster", "c1,c2", "--export", "sample/whereami-cs"}
	start := time.Now()
	out := s.must(t, "", drill...)
	t.Logf("figure: a drill took %.0f s:\n%s", time.Since(start).Seconds(), out)
	for _, want := range []string{
		"\npod on c1/c1n1: 2 of 2 names answered\n", "Connections of pods during the drill of c1/" + used, "\nc1/c1n2  ",
		"of nodes used it before. Unused ", "No request was lost, no open connection broke.\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the report does not contain %q", want)
		}
	}
	if s.isDrained(t, nodes[used]) {
		t.Errorf("c1/%s is drained after the drill", used)
	}

	cmd := exec.CommandContext(t.Context(), drill[0], drill[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
	var text lockedBuffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // no effect after Wait
	s.eventually(t, func(string) bool {
		return strings.Contains(text.String(), "draining c1/"+used) && s.isDrained(t, nodes[used])
	}, "true")
	if err := cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("after SIGINT the drill ended with %v, want exit code 2:\n%s", err, text.String())
	}
	if s.isDrained(t, nodes[used]) {
		t.Errorf("c1/%s is drained after SIGINT:\n%s", used, text.String())
	}
	for _, c := range s.clusters {
		s.eventually(t, func(out string) bool { return !strings.Contains(out, "hawser-verify-") }, "kubectl", "--context", c, "get", "namespaces", "-o", "name")
	}
}

// usedGateway returns the gateway of c1 that c2's nodes use.
func (s *clusterset) usedGateway(t *testing.T, nodes map[string]string) string {
	t.Helper()
	used := ""
	s.eventually(t, func(out string) bool {
		var st status.Status
		if err := json.Unmarshal([]byte(out), &st); err != nil {
			return false
		}
		i := slices.IndexFunc(st.Paths, func(p status.Path) bool { return p.Cluster == "c1" && nodes[p.RemoteGateway] != "" })
		if i >= 0 {
			used = st.Paths[i].RemoteGateway
		}
		return i >= 0
	}, append(s.agentCommand("c2n2"), "-o", "json")...)
	return used
}

// isDrained reports whether the gateway on a node is drained.
func (s *clusterset) isDrained(t *testing.T, node string) bool {
	t.Helper()
	var st status.Status
	if err := json.Unmarshal([]byte(s.must(t, "", append(s.agentCommand(node), "-o", "json")...)), &st); err != nil {
		t.Fatal(err)
	}
	return st.Drained
}

// lockedBuffer is a buffer for a running program's output.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
