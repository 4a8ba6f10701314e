//go:build kube

package kube

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// reuseEnv names the folder of clusters that are up already (kubelab --dir); tests
// use them and leave them. A second variable of the same kind is for flat ones.
const (
	reuseEnv     = "HAWSER_KUBE_LAB"
	reuseFlatEnv = "HAWSER_KUBE_LAB_FLAT"
)

// limit is how long a condition may take on a slow machine.
const limit = 3 * time.Minute

// programs are built once for all tests.
type programs struct {
	dir  string // hawser, hawser-agent, kubelab
	kube string // hack/setup-kube.sh's
	labs map[bool]*rig
	mu   sync.Mutex
}

var built = programs{labs: map[bool]*rig{}} // of TestMain alone

// TestMain builds the programs and takes down the clusters that tests needed.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return m.Run() // every test skips by name
	}
	dir, err := os.MkdirTemp("", "hawser-kube-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		built.dir = dir
		err = built.build()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer built.down()
	return m.Run()
}

func (p *programs) build() error {
	setup := exec.Command("../../hack/setup-kube.sh")
	setup.Stderr = os.Stderr
	out, err := setup.Output()
	if err != nil {
		return fmt.Errorf("hack/setup-kube.sh: %w", err)
	}
	p.kube = strings.TrimSpace(string(out))
	for _, source := range []string{"./cmd/hawser", "./cmd/hawser-agent", "./e2e/kube/lab:kubelab", "./e2e/traffic:hawser-traffic"} {
		source, name, ok := strings.Cut(source, ":")
		if !ok {
			name = filepath.Base(source)
		}
		build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(p.dir, name), source)
		build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return os.Setenv("PATH", p.dir+":"+p.kube+":"+os.Getenv("PATH"))
}

func (p *programs) down() {
	for _, r := range p.labs {
		if r.ours {
			if out, err := exec.Command("kubelab", "--dir", r.dir, "down").CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "kubelab down: %v\n%s", err, out)
			}
		}
	}
}

// rig is two clusters, c1 and c2, that tests share. Each test has namespaces or
// names of its own, or says that it must be alone.
type rig struct {
	dir        string
	kubeconfig string
	ours       bool
	clusters   []string
}

// needRig gives clusters with the same prefixes, or flat ones with their own.
func needRig(t *testing.T, flat bool) *rig {
	t.Helper()
	need(t)
	built.mu.Lock()
	defer built.mu.Unlock()
	if r := built.labs[flat]; r != nil {
		return r
	}
	name := map[bool]string{false: reuseEnv, true: reuseFlatEnv}[flat]
	r := &rig{dir: os.Getenv(name), clusters: []string{"c1", "c2"}}
	if r.dir == "" {
		r.dir, r.ours = filepath.Join("/var/tmp", "hk-"+filepath.Base(built.dir)+map[bool]string{true: "-flat"}[flat]), true
		built.labs[flat] = r
		up := exec.Command("kubelab", "--dir", r.dir, "up", "--bin", built.kube, "--agent", filepath.Join(built.dir, "hawser-agent"))
		if flat {
			up.Args = append(up.Args, "--flat")
		}
		up.Dir, up.Stderr = "../..", os.Stderr
		if err := up.Run(); err != nil {
			t.Fatalf("kubelab up: %v", err)
		}
	}
	built.labs[flat] = r
	r.kubeconfig = filepath.Join(r.dir, "kubeconfig")
	return r
}

// need skips, by name, what this machine lacks; REQUIRE_KERNEL=1 makes that a failure.
func need(t *testing.T) {
	t.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "root"
	} else if _, err := os.Stat("/sys/fs/cgroup/memory"); err != nil {
		missing = "cgroups of version 1"
	}
	switch {
	case missing == "":
	case os.Getenv("REQUIRE_KERNEL") == "1":
		t.Fatalf("needs %s", missing)
	default:
		t.Skipf("needs %s", missing)
	}
}

// try runs a program in a folder, with the clusters' kubeconfig.
func (r *rig) try(ctx context.Context, dir, input string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.kubeconfig, reuseEnv+"="+r.dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out.String())
	}
	return out.String(), nil
}

// kubectl must succeed.
func (r *rig) kubectl(t *testing.T, cluster string, args ...string) string {
	t.Helper()
	return r.must(t, "", append([]string{"kubectl", "--context", cluster}, args...)...)
}

// apply gives a cluster manifests.
func (r *rig) apply(t *testing.T, cluster, manifests string) {
	t.Helper()
	r.must(t, manifests, "kubectl", "--context", cluster, "apply", "--server-side", "--force-conflicts", "-f", "-")
}

func (r *rig) must(t *testing.T, input string, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out, err := r.try(ctx, "", input, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// eventually runs a program until it succeeds and its output is as wanted.
func (r *rig) eventually(t *testing.T, want func(string) bool, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		out, err := r.try(ctx, "", "", argv...)
		if err == nil && want(out) {
			return out
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %s\n%s%v", limit, strings.Join(argv, " "), out, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// has is a condition for eventually.
func has(text string) func(string) bool {
	return func(out string) bool { return strings.Contains(out, text) }
}

// within runs a command in a pod: namespace/name, or a name of namespace default.
func within(cluster, pod string, argv ...string) []string {
	namespace, name, ok := strings.Cut(pod, "/")
	if !ok {
		namespace, name = "default", pod
	}
	return append([]string{"kubectl", "--context", cluster, "-n", namespace, "exec", name, "--"}, argv...)
}

// set is a clusterset on a rig: its topology and what is rendered from it.
type set struct {
	*rig
	dir string // clusterset.yaml, its lock, keys and tree
}

// newSet writes a topology of testdata with recipients of its own.
func newSet(t *testing.T, r *rig, topology string) *set {
	t.Helper()
	s := &set{rig: r, dir: t.TempDir()}
	raw, err := os.ReadFile(topology)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	r.must(t, "", "hawser", "keys", "root", s.path("root.key"))
	for _, c := range r.clusters {
		recipient := r.must(t, "", "hawser", "keys", "identity", s.path(c+".identity"))
		text = strings.ReplaceAll(text, "RECIPIENT-"+c, strings.TrimSpace(recipient))
	}
	s.write(t, text)
	return s
}

func (s *set) path(name string) string { return filepath.Join(s.dir, name) }

func (s *set) write(t *testing.T, topology string) {
	t.Helper()
	if err := os.WriteFile(s.path("clusterset.yaml"), []byte(topology), 0o600); err != nil {
		t.Fatal(err)
	}
}

// change edits the topology, and gives the clusters what follows from it.
func (s *set) change(t *testing.T, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(s.path("clusterset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(raw), from) != 1 {
		t.Fatalf("%q is not in the topology once", from)
	}
	s.write(t, strings.Replace(string(raw), from, to, 1))
	s.sync(t)
}

// install prepares the clusters for Hawser, as an operator does once, and syncs.
func (s *set) install(t *testing.T) {
	t.Helper()
	for _, c := range s.clusters {
		s.apply(t, c, "apiVersion: v1\nkind: Namespace\nmetadata: {name: hawser-system}\n")
		secret := s.kubectl(t, c, "-n", "hawser-system", "create", "secret", "generic", "hawser-age-identity",
			"--from-file=identity.txt="+s.path(c+".identity"), "--dry-run=client", "-o", "yaml")
		s.apply(t, c, secret)
	}
	s.sync(t)
}

// sync renders the topology and applies each cluster's folder.
func (s *set) sync(t *testing.T) {
	t.Helper()
	topology, tree := s.path("clusterset.yaml"), s.path("tree")
	s.must(t, "", "hawser", "allocate", topology)
	s.must(t, "", "hawser", "render", topology, "--root-key", s.path("root.key"), "--image", "hawser.dev/hawser-agent:lab", "--out", tree)
	for _, c := range s.clusters {
		// What is defined and what is of the kind come in one go: the second try has both.
		s.eventually(t, func(string) bool { return true },
			"kubectl", "--context", c, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(tree, "clusters", c))
	}
}

// ready waits until the agents of all nodes are.
func (s *set) ready(t *testing.T) {
	t.Helper()
	for _, c := range s.clusters {
		sets := strings.Fields(s.kubectl(t, c, "-n", "hawser-system", "get", "daemonsets", "-o", "name"))
		for _, name := range sets {
			s.kubectl(t, c, "-n", "hawser-system", "rollout", "status", name, "--timeout="+limit.String())
		}
	}
}

// workloads puts whereami and clients into both clusters, and waits for them.
func (r *rig) workloads(t *testing.T) {
	t.Helper()
	raw, err := os.ReadFile("testdata/workloads.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.clusters {
		r.apply(t, c, strings.ReplaceAll(string(raw), "THISCLUSTER", c))
	}
	for _, c := range r.clusters {
		r.kubectl(t, c, "wait", "--for=condition=Ready", "pod", "--all", "-A", "--timeout="+limit.String())
	}
}
