//go:build kube

package kube

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hawser.dev/hawser/e2e/kube/cni"
)

// reuseEnv names the folder of running clusters (kubelab --dir) for the tests, which do not remove
// them. The other variables are for clusters of other shapes.
const (
	reuseEnv     = "HAWSER_KUBE_LAB"
	reuseFlatEnv = "HAWSER_KUBE_LAB_FLAT"
	reuseDualEnv = "HAWSER_KUBE_LAB_DUAL"
	reuseIPv6Env = "HAWSER_KUBE_LAB_IPV6"
)

// cniEnv selects the network of clusters that the tests start, cniSettingsEnv some of its settings
// (NAME=VALUE,NAME=VALUE), and proxyEnv the mode of kube-proxy.
const (
	cniEnv         = "HAWSER_KUBE_CNI"
	cniSettingsEnv = "HAWSER_KUBE_CNI_SETTINGS"
	proxyEnv       = "HAWSER_KUBE_PROXY"
)

// binariesEnv names a folder, with its absolute path, of the programs to test. Without it the tests
// build them.
const binariesEnv = "HAWSER_E2E_BIN"

// limit bounds the wait for a condition on a slow machine.
const limit = 3 * time.Minute

// programs are built once for all tests.
type programs struct {
	dir  string // hawser, hawser-agent, kubelab
	kube string // folder of hack/setup-kube.sh
	cni  string // folder of hack/setup-cni.sh, if the network has programs
	labs map[shape]*rig
	mu   sync.Mutex

	missing string // missing programs; all tests are then skipped
}

// shape describes the clusters of a rig.
type shape struct {
	flat     bool   // different prefixes; otherwise both have the same
	pods     string // kubelab up --pods
	proxy    string // kubelab up --proxy
	families string // kubelab up --families; empty: IPv4 only
	cni      string // kubelab up --cni; empty: its bridge
	settings string // settings of the network, separated by commas
}

// fromEnv returns the shape with the network of the environment. A proxy other than nftables is
// required by a test, and stays.
func (of shape) fromEnv() shape {
	of.cni, of.settings = os.Getenv(cniEnv), os.Getenv(cniSettingsEnv)
	if of.proxy == "nftables" {
		of.proxy = cmp.Or(os.Getenv(proxyEnv), of.proxy)
	}
	return of
}

// network returns the recipe of the clusters' network. A user's own script is assumed to support
// everything.
func (of shape) network() cni.Recipe {
	recipe, err := cni.Find(cmp.Or(of.cni, "bridge"))
	if err != nil {
		return cni.Recipe{Routed: true, IPv6: true, Policies: true}
	}
	return recipe
}

// The shapes that tests share.
var (
	same = shape{proxy: "nftables"}
	flat = shape{flat: true, proxy: "nftables"}
	dual = shape{proxy: "nftables", families: "dual"}
	six  = shape{proxy: "nftables", families: "ipv6"}
)

var built = programs{labs: map[shape]*rig{}} // TestMain fills it

// TestMain builds the programs, and removes the clusters of the tests at the end.
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
	if of := same.fromEnv(); of != same {
		fmt.Printf("new clusters have the network %s %s and kube-proxy %s\n", cmp.Or(of.cni, "bridge"), of.settings, of.proxy)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, unix.SIGINT, unix.SIGTERM)
	go func() { // remove the clusters of an interrupted run
		<-interrupted
		for _, r := range built.labs {
			r.takeDown()
		}
		_ = os.RemoveAll(dir)
		os.Exit(1)
	}()
	return m.Run()
}

func (p *programs) build() error {
	var err error
	if p.kube, err = p.setUp("setup-kube"); err != nil {
		return err
	}
	if network, found := cni.Find(os.Getenv(cniEnv)); found == nil && network.Setup {
		if p.cni, err = p.setUp("setup-cni", os.Getenv(cniEnv)); err != nil {
			return err
		}
	}
	if p.missing != "" {
		return nil
	}
	for _, source := range []string{"./cmd/hawser", "./cmd/hawser-agent", "./e2e/kube/lab:kubelab", "./e2e/traffic/hawser-traffic"} {
		source, name, ok := strings.Cut(source, ":")
		if !ok {
			name = filepath.Base(source)
		}
		if under := os.Getenv(binariesEnv); under != "" {
			if err := os.Symlink(filepath.Join(under, name), filepath.Join(p.dir, name)); err != nil {
				return fmt.Errorf("use built program %s: %w", name, err)
			}
			continue
		}
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(p.dir, name), source)
		build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return os.Setenv("PATH", p.dir+":"+p.kube+":"+os.Getenv("PATH"))
}

// setUp runs a script of hack that prints a folder of programs. The script builds missing programs
// only with REQUIRE_KERNEL=1, as that takes minutes.
func (p *programs) setUp(script string, args ...string) (string, error) {
	setup := exec.Command("../../hack/"+script+".sh", append([]string{"--find"}, args...)...)
	if required() {
		setup = exec.Command("../../hack/"+script+".sh", args...)
		setup.Stderr = os.Stderr
	}
	out, err := setup.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) && failed.ExitCode() == 3 {
		p.missing = strings.TrimSpace(string(failed.Stderr)) + " (hack/" + script + ".sh)"
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("hack/%s.sh: %w", script, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (p *programs) down() {
	for _, r := range p.labs {
		r.down()
	}
}

// down removes the clusters if the tests started them.
func (r *rig) down() {
	built.mu.Lock()
	defer built.mu.Unlock()
	delete(built.labs, r.shape)
	r.takeDown()
}

func (r *rig) takeDown() {
	if !r.ours {
		return
	}
	if out, err := r.remove(); err != nil {
		fmt.Fprintf(os.Stderr, "kubelab down: %v\n%s", err, out)
	}
}

// removeAtEnd starts a process that removes the clusters after a call of the returned function, or at
// the end of this process, also by a signal or the time limit of go test.
func removeAtEnd(dir string) (remove func() ([]byte, error), err error) {
	log, err := os.CreateTemp("", "kubelab-down-")
	if err != nil {
		return nil, fmt.Errorf("create log of kubelab down: %w", err)
	}
	cmd := exec.Command("sh", "-c", `cat >/dev/null; kubelab --dir "$1" down && rm -f "$2"`, "sh", dir, log.Name())
	cmd.Stdout, cmd.Stderr = log, log // not the pipe of go test, which waits until all have closed it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ours, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start kubelab down: %w", err), log.Close(), os.Remove(log.Name()))
	}
	return func() ([]byte, error) {
		err := errors.Join(ours.Close(), cmd.Wait())
		out, _ := io.ReadAll(io.NewSectionReader(log, 0, 1<<20))
		return out, errors.Join(err, log.Close())
	}, nil
}

// rig is two clusters, c1 and c2, used by one test after the other.
type rig struct {
	dir        string
	kubeconfig string
	ours       bool
	shape      shape
	clusters   []string
	set        *set // installed clusterset
	remove     func() ([]byte, error)
}

// needRig returns clusters of a shape, and starts them if necessary.
func needRig(t *testing.T, of shape) *rig {
	t.Helper()
	need(t)
	built.mu.Lock()
	defer built.mu.Unlock()
	reuse := map[shape]string{same: reuseEnv, flat: reuseFlatEnv, dual: reuseDualEnv, six: reuseIPv6Env}[of]
	of = of.fromEnv()
	if of.families != "" && !of.network().IPv6 {
		t.Skipf("network %s supports only IPv4 in the lab", of.cni)
	}
	if r := built.labs[of]; r != nil {
		return r
	}
	r := &rig{shape: of, clusters: []string{"c1", "c2"}}
	built.labs[of] = r
	if reuse != "" {
		r.dir = os.Getenv(reuse)
	}
	if r.dir != "" { // new pods run the agent of this tree
		if out, err := exec.Command("kubelab", "--dir", r.dir, "load", filepath.Join(built.dir, "hawser-agent")).CombinedOutput(); err != nil {
			t.Fatalf("kubelab load: %v\n%s", err, out)
		}
	} else {
		name := fmt.Sprintf("hk-%d-%s%s%s", os.Getpid(), of.proxy, map[bool]string{true: "-flat"}[of.flat], of.families)
		if of.pods != "" {
			name += "-pods"
		}
		r.dir = filepath.Join("/var/tmp", name)
		var err error
		if r.remove, err = removeAtEnd(r.dir); err != nil {
			t.Fatal(err)
		}
		r.ours = true
		up := exec.Command("kubelab", "--dir", r.dir, "up", "--bin", built.kube, "--agent", filepath.Join(built.dir, "hawser-agent"),
			"--proxy", of.proxy, fmt.Sprintf("--flat=%t", of.flat), "--pods", of.pods, "--families", cmp.Or(of.families, "ipv4"),
			"--cni", cmp.Or(of.cni, "bridge"), "--cni-bin", built.cni)
		for setting := range strings.SplitSeq(of.settings, ",") {
			if setting != "" {
				up.Args = append(up.Args, "--cni-setting", setting)
			}
		}
		up.Dir, up.Stderr = "../..", os.Stderr
		// kubelab up ends with this process, before the clusters are removed.
		up.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		runtime.LockOSThread() // the kernel sends the signal when the thread ends
		defer runtime.UnlockOSThread()
		start := time.Now()
		if err := up.Run(); err != nil {
			t.Fatalf("kubelab up: %v", err)
		}
		t.Logf("figure: two clusters of two nodes each are up after %.1f s", time.Since(start).Seconds())
	}
	r.kubeconfig = filepath.Join(r.dir, "kubeconfig")
	return r
}

func required() bool { return os.Getenv("REQUIRE_KERNEL") == "1" }

// need skips the test if the machine lacks a requirement, or fails it with REQUIRE_KERNEL=1.
func need(t *testing.T) {
	t.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "root"
	} else if _, err := os.Stat("/sys/fs/cgroup/memory"); err != nil {
		missing = "cgroups of version 1"
	} else {
		missing = built.missing
	}
	switch {
	case missing == "":
	case required():
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

// kubectl runs kubectl, which must succeed.
func (r *rig) kubectl(t *testing.T, cluster string, args ...string) string {
	t.Helper()
	return r.must(t, "", append([]string{"kubectl", "--context", cluster}, args...)...)
}

// apply applies manifests to a cluster.
func (r *rig) apply(t *testing.T, cluster, manifests string) {
	t.Helper()
	r.must(t, manifests, "kubectl", "--context", cluster, "apply", "--server-side", "--force-conflicts", "-f", "-")
}

func (r *rig) must(t *testing.T, input string, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := r.try(ctx, "", input, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// eventually runs a program until it succeeds with a wanted output.
func (r *rig) eventually(t *testing.T, want func(string) bool, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
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

// has returns a condition for eventually: the output contains text.
func has(text string) func(string) bool {
	return func(out string) bool { return strings.Contains(out, text) }
}

// within returns the command that runs argv in a pod: namespace/name, or a name in namespace default.
func within(cluster, pod string, argv ...string) []string {
	namespace, name, ok := strings.Cut(pod, "/")
	if !ok {
		namespace, name = "default", pod
	}
	return append([]string{"kubectl", "--context", cluster, "-n", namespace, "exec", name, "--"}, argv...)
}

// workloads deploys whereami and clients in both clusters, and waits for them.
func (r *rig) workloads(t *testing.T) {
	t.Helper()
	text := workloads(t)
	for _, c := range r.clusters {
		r.apply(t, c, strings.ReplaceAll(text, "THISCLUSTER", c))
	}
	for _, c := range r.clusters {
		r.kubectl(t, c, "wait", "--for=condition=Ready", "pod", "--all", "-A", "--timeout="+limit.String())
	}
}

func workloads(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("testdata/workloads.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
