//go:build kube

package kube

import "testing"

// TestUninstall: Hawser leaves nodes as they were before it came, and CoreDNS's
// configuration too. It is the last test, as the clusters have no Hawser after it.
func TestUninstall(t *testing.T) {
	s := needSet(t, same)
	s.ask(t, "c1", "client", "c2."+service, from("c2"))
	s.must(t, "", "hawser", "uninstall", "c1", "c2", "--kubeconfig", s.kubeconfig, "--yes")
	s.rig.set = nil
	s.workloads(t)
	if text := differences(s.before, s.snapshots(t)); text != "" {
		t.Errorf("not as before:\n%s", text)
	}
	for _, c := range s.clusters {
		if out := s.kubectl(t, c, "get", "namespaces", "-o", "name"); has("hawser-system")(out) {
			t.Errorf("%s: %s", c, out)
		}
		for _, node := range []string{c + "n1", c + "n2"} {
			const find = "find /run/hawser /var/lib/hawser -type f -o -type s 2>/dev/null; true"
			if out := s.must(t, "", "kubelab", "--dir", s.rig.dir, "node", node, "sh", "-c", find); out != "" {
				t.Errorf("%s has left:\n%s", node, out)
			}
		}
	}
}
