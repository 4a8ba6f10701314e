//go:build kube

package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clusterset is the clusterset of a pair of clusters: its topology and its rendered tree.
type clusterset struct {
	*clusterPair
	dir      string // root.key, identities, repo with clusterset.yaml, and tree with the publication
	topology string // initial topology
	before   map[string]string
	renamed  map[string]string // machines by the current names of their nodes
}

// needClusterset returns clusters with Hawser and the workloads. A test that changes the topology
// restores it (clusterset.reset).
func needClusterset(t *testing.T, opts labOptions) *clusterset {
	t.Helper()
	pair := needClusters(t, opts)
	if pair.installed != nil {
		return pair.installed
	}
	pair.workloads(t)
	s := newClusterset(t, pair, "testdata/clusterset.yaml")
	s.before = pair.snapshots(t)
	start := time.Now()
	s.install(t)
	s.awaitAnswer(t, "c1", "client", serviceName, fromCluster("c2"))
	t.Logf("figure: from nothing installed to a pod's first answer by name from the other cluster: %.1f s", time.Since(start).Seconds())
	s.awaitReady(t)
	pair.installed = s
	return s
}

// newClusterset writes a topology of testdata with the recipients and prefixes of the clusters.
func newClusterset(t *testing.T, pair *clusterPair, topology string) *clusterset {
	t.Helper()
	s := &clusterset{clusterPair: pair}
	raw, err := os.ReadFile(topology)
	if err == nil {
		s.dir, err = os.MkdirTemp(built.dir, filepath.Base(pair.dir)+"-")
	}
	if err != nil {
		t.Fatal(err)
	}
	s.topology = inFamilies(string(raw), pair.shape.families)
	pair.must(t, "", "hawser", "keys", "root", s.path("root.key"))
	pair.must(t, "", "git", "init", "-q", "-b", "main", s.path("repo"))
	for i, c := range pair.clusters {
		recipient := pair.must(t, "", "hawser", "keys", "identity", s.path(c+".identity"))
		pods, services := prefixes(pair.shape, 7, 11+i, 16, 56), prefixes(pair.shape, 77, 101+i, 16, 112)
		if pair.shape.pods != "" {
			pods = strings.Split(pair.shape.pods, ",")[i]
		}
		s.topology = strings.NewReplacer("RECIPIENT-"+c, strings.TrimSpace(recipient), "PODS-"+c, pods, "SERVICES-"+c, services).Replace(s.topology)
	}
	s.write(t, s.topology)
	return s
}

// prefixes returns the prefixes of a cluster as in kubelab up. all is the number in the common
// prefix, own the number in the cluster's own prefix.
func prefixes(opts labOptions, all, own, bits4, bits6 int) string {
	if opts.flat {
		all = own
	}
	four, six := fmt.Sprintf("10.%d.0.0/%d", all, bits4), fmt.Sprintf(`"fd00:10:%d::/%d"`, all, bits6)
	switch opts.families {
	case "dual":
		return four + ", " + six
	case "ipv6":
		return six
	}
	return four
}

// inFamilies converts an IPv4 topology of testdata to other families. With both families, the
// gateways use IPv4 between them.
func inFamilies(topology, families string) string {
	const pool, block = "    egressIPs: 8\n", "    globalCIDR: 242.2.0.0/24\n"
	const pool6, block6 = "    ipv6Cidr: fd7f:1:1::/48\n", "    globalIPv6CIDR: fd7f:1:1:2::/112\n"
	switch families {
	case "dual":
		return strings.NewReplacer(pool, pool+pool6, block, block+block6).Replace(topology)
	case "ipv6":
		return strings.NewReplacer(pool, pool+pool6, block, block6, "172.31.1.11", `"fd00:172:31:1::11"`, "172.31.2.11", `"fd00:172:31:2::11"`).Replace(topology)
	}
	return topology
}

// reset restores the initial topology.
func (s *clusterset) reset(t *testing.T) {
	t.Helper()
	s.write(t, s.topology)
	s.sync(t)
}

func (s *clusterset) path(name string) string { return filepath.Join(s.dir, name) }

func (s *clusterset) write(t *testing.T, topology string) {
	t.Helper()
	if err := os.WriteFile(s.path("repo/clusterset.yaml"), []byte(topology), 0o600); err != nil {
		t.Fatal(err)
	}
}

// edit changes the topology in one place, without a commit.
func (s *clusterset) edit(t *testing.T, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(s.path("repo/clusterset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(raw), from) != 1 {
		t.Fatalf("%q does not occur exactly once in the topology", from)
	}
	s.write(t, strings.Replace(string(raw), from, to, 1))
}

// change edits the topology and syncs.
func (s *clusterset) change(t *testing.T, from, to string) {
	t.Helper()
	s.edit(t, from, to)
	s.sync(t)
}

// commit commits all changes in the repository.
func (s *clusterset) commit(t *testing.T) {
	t.Helper()
	git := []string{"git", "-C", s.path("repo"), "-c", "user.name=test", "-c", "user.email=test@example.org"}
	s.must(t, "", append(git, "add", "-A")...)
	if s.must(t, "", append(git, "status", "--porcelain")...) != "" {
		s.must(t, "", append(git, "commit", "-q", "-m", "change")...)
	}
}

// publish runs the reconciler on the newest commit.
func (s *clusterset) publish(ctx context.Context) (string, error) {
	return s.try(ctx, "", "", "hawser", "reconcile", "--once", "--repo", s.path("repo"), "--root-key", s.path("root.key"),
		"--image", "hawser.dev/hawser-agent:lab")
}

// sync commits, publishes, and applies each cluster's directory of the branch.
func (s *clusterset) sync(t *testing.T) {
	t.Helper()
	s.commit(t)
	if _, err := s.publish(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.must(t, "", "sh", "-ec", `rm -rf "$2"; mkdir "$2"; git -C "$1" archive rendered | tar -x -C "$2"`, "sh", s.path("repo"), s.path("tree"))
	for _, c := range s.clusters {
		// Exports follow their definitions.
		for _, dir := range []string{s.path("tree/clusters/" + c), s.path("tree/clusters/" + c + "/exports")} {
			if _, err := os.Stat(dir); err == nil {
				s.eventually(t, contains(""), "kubectl", "--context", c, "apply", "--server-side", "--force-conflicts", "-k", dir)
			}
		}
	}
}

// install prepares the clusters for Hawser, as an operator does once, and syncs.
func (s *clusterset) install(t *testing.T) {
	t.Helper()
	for _, c := range s.clusters {
		s.apply(t, c, "apiVersion: v1\nkind: Namespace\nmetadata: {name: hawser-system}\n")
		secret := s.kubectl(t, c, "-n", "hawser-system", "create", "secret", "generic", "hawser-age-identity",
			"--from-file=identity.txt="+s.path(c+".identity"), "--dry-run=client", "-o", "yaml")
		s.apply(t, c, secret)
		s.apply(t, c, s.must(t, "", "hawser", "keys", "signers", s.path("repo"), "--root-key", s.path("root.key"), "--cluster", c, "-o", "secret"))
	}
	s.sync(t)
	if !s.owned { // replace the agents of an earlier run
		for _, c := range s.clusters {
			s.kubectl(t, c, "-n", "hawser-system", "delete", "pod", "--all")
		}
	}
}

// awaitReady waits until the agents of all nodes are ready. After the timeout it calls logAgents and
// fails the test.
func (s *clusterset) awaitReady(t *testing.T) {
	t.Helper()
	for _, c := range s.clusters {
		for name := range strings.FieldsSeq(s.kubectl(t, c, "-n", "hawser-system", "get", "daemonsets", "-o", "name")) {
			_, err := s.try(context.Background(), "", "", "kubectl", "--context", c, "-n", "hawser-system",
				"rollout", "status", name, "--timeout="+conditionTimeout.String())
			if err != nil {
				s.logAgents(t, c)
				t.Fatal(err)
			}
		}
	}
}

// logAgents logs the agents' pods of a cluster, the events of hawser-system, and the status and the
// last lines of each agent that is not ready.
func (s *clusterset) logAgents(t *testing.T, cluster string) {
	t.Helper()
	const script = `kubectl="kubectl --context $1 -n hawser-system"
$kubectl get nodes,pods -o wide
$kubectl get events --sort-by=.lastTimestamp | tail -40
for pod in $($kubectl get pods -o 'jsonpath={range .items[*]}{.metadata.name}{.status.containerStatuses[*].ready}{"\n"}{end}' | sed -n 's/false$//p'); do
	echo "== $pod"
	$kubectl exec $pod -- /hawser-agent status
	$kubectl logs --tail=60 $pod
done`
	out, err := s.try(context.Background(), "", "", "timeout", "60", "sh", "-c", script, "sh", cluster)
	if err != nil {
		t.Log(err)
		return
	}
	t.Log(out)
}
