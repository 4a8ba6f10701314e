//go:build kube

package kube

import (
	"context"
	"testing"
	"time"
)

// TestUninstall tests that the state of nodes and CoreDNS's configuration after an uninstall equal the
// state before the installation. It is the last test: the clusters have no Hawser afterwards.
func TestUninstall(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	s.awaitAnswer(t, "c1", "client", "c2."+serviceName, fromCluster("c2"))
	// The page's pod is not an agent: the uninstall must not wait for it.
	s.change(t, "\nspec:\n", "\nspec:\n  ui: {}\n")
	s.eventually(t, contains("hawser-ui"), "kubectl", "--context", "c1", "-n", "hawser-system", "get", "pods")
	s.uninstall(t)
}

// uninstall uninstalls Hawser from the clusters and checks the remaining state.
func (s *clusterset) uninstall(t *testing.T) {
	t.Helper()
	if differences(s.before, s.snapshots(t)) == "" {
		t.Fatal("the snapshots do not see what Hawser is made of")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if out, err := s.try(ctx, "", "", "hawser", "uninstall", "c1", "c2", "--kubeconfig", s.kubeconfig, "--yes"); err != nil {
		t.Fatal(err)
	} else {
		t.Log(out)
	}
	s.clusterPair.installed = nil
	s.workloads(t)
	if text := differences(s.before, s.snapshots(t)); text != "" {
		t.Errorf("not as before:\n%s", text)
	}
	for _, c := range s.clusters {
		if out := s.kubectl(t, c, "get", "namespaces", "-o", "name"); contains("hawser-system")(out) {
			t.Errorf("%s: %s", c, out)
		}
		if out := s.kubectl(t, c, "get", "clusterroles,clusterrolebindings", "-o", "name"); contains("hawser")(out) {
			t.Errorf("%s: %s", c, out)
		}
		for _, node := range []string{c + "n1", c + "n2"} {
			// hawser uninstall reports the remaining state directory; no process remains.
			if out := s.must(t, "", "kubelab", "--dir", s.clusterPair.dir, "node", node, "sh", "-c", "pidof hawser-agent; true"); out != "" {
				t.Errorf("%s still runs agents: %s", node, out)
			}
		}
	}
}
