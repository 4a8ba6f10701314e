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

// reuseEnv names the directory of running clusters (kubelab --dir) for the tests, which do not
// remove them. The other variables are for clusters with other options.
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

// binariesEnv names a directory, with its absolute path, of the programs to test. Without it the
// tests build them.
const binariesEnv = "HAWSER_E2E_BIN"

// conditionTimeout bounds the wait for a condition on a slow machine.
const conditionTimeout = 3 * time.Minute

// programs are built once for all tests.
type programs struct {
	dir  string // hawser, hawser-agent, kubelab
	kube string // directory of hack/setup-kube.sh
	cni  string // directory of hack/setup-cni.sh, if the network has programs
	labs map[labOptions]*clusterPair
	mu   sync.Mutex

	missing string // missing programs; all tests are then skipped
}

// labOptions are the options of kubelab up for a pair of clusters.
type labOptions struct {
	flat     bool   // different prefixes; otherwise both have the same
	pods     string // kubelab up --pods
	proxy    string // kubelab up --proxy
	families string // kubelab up --families; empty: IPv4 only
	cni      string // kubelab up --cni; empty: its bridge
	settings string // settings of the network, separated by commas
}

// fromEnv returns the options with the network of the environment. It keeps a proxy other than
// nftables, because the test requires it.
func (opts labOptions) fromEnv() labOptions {
	opts.cni, opts.settings = os.Getenv(cniEnv), os.Getenv(cniSettingsEnv)
	if opts.proxy == "nftables" {
		opts.proxy = cmp.Or(os.Getenv(proxyEnv), opts.proxy)
	}
	return opts
}

// network returns the recipe of the clusters' network. A user's own script is assumed to support
// everything.
func (opts labOptions) network() cni.Recipe {
	recipe, err := cni.Find(cmp.Or(opts.cni, "bridge"))
	if err != nil {
		return cni.Recipe{Routed: true, IPv6: true, Policies: true}
	}
	return recipe
}

// The options that tests share.
var (
	samePrefixes = labOptions{proxy: "nftables"}
	flat         = labOptions{flat: true, proxy: "nftables"}
	dualStack    = labOptions{proxy: "nftables", families: "dual"}
	ipv6Only     = labOptions{proxy: "nftables", families: "ipv6"}
)

var built = programs{labs: map[labOptions]*clusterPair{}} // TestMain fills it

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
	if opts := samePrefixes.fromEnv(); opts != samePrefixes {
		fmt.Printf("new clusters have the network %s %s and kube-proxy %s\n", cmp.Or(opts.cni, "bridge"), opts.settings, opts.proxy)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, unix.SIGINT, unix.SIGTERM)
	go func() { // remove the clusters of an interrupted run
		<-interrupted
		for _, pair := range built.labs {
			pair.takeDown()
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

// setUp runs a script of hack that prints a directory of programs. The script builds missing
// programs only with REQUIRE_KERNEL=1, as that takes minutes.
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
	for _, pair := range p.labs {
		pair.down()
	}
}

// down removes the clusters if the tests started them.
func (pair *clusterPair) down() {
	built.mu.Lock()
	defer built.mu.Unlock()
	delete(built.labs, pair.shape)
	pair.takeDown()
}

func (pair *clusterPair) takeDown() {
	if !pair.owned {
		return
	}
	if out, err := pair.remove(); err != nil {
		fmt.Fprintf(os.Stderr, "kubelab down: %v\n%s", err, out)
	}
}

// removeAtEnd starts a process that removes the clusters. It does so when remove is called or this
// process ends, even by a signal or the time limit of go test.
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

// clusterPair is a pair of clusters, c1 and c2, used by one test after the other.
type clusterPair struct {
	dir        string
	kubeconfig string
	owned      bool
	shape      labOptions
	clusters   []string
	installed  *clusterset // installed clusterset
	remove     func() ([]byte, error)
}

// needClusters returns clusters with the options, and starts them if necessary.
func needClusters(t *testing.T, opts labOptions) *clusterPair {
	t.Helper()
	needMachine(t)
	built.mu.Lock()
	defer built.mu.Unlock()
	reuse := map[labOptions]string{samePrefixes: reuseEnv, flat: reuseFlatEnv, dualStack: reuseDualEnv, ipv6Only: reuseIPv6Env}[opts]
	opts = opts.fromEnv()
	if opts.families != "" && !opts.network().IPv6 {
		t.Skipf("network %s supports only IPv4 in the lab", opts.cni)
	}
	if pair := built.labs[opts]; pair != nil {
		return pair
	}
	pair := &clusterPair{shape: opts, clusters: []string{"c1", "c2"}}
	built.labs[opts] = pair
	if reuse != "" {
		pair.dir = os.Getenv(reuse)
	}
	if pair.dir != "" { // new pods run the agent of this tree
		if out, err := exec.Command("kubelab", "--dir", pair.dir, "load", filepath.Join(built.dir, "hawser-agent")).CombinedOutput(); err != nil {
			t.Fatalf("kubelab load: %v\n%s", err, out)
		}
	} else {
		name := fmt.Sprintf("hk-%d-%s%s%s", os.Getpid(), opts.proxy, map[bool]string{true: "-flat"}[opts.flat], opts.families)
		if opts.pods != "" {
			name += "-pods"
		}
		pair.dir = filepath.Join("/var/tmp", name)
		var err error
		if pair.remove, err = removeAtEnd(pair.dir); err != nil {
			t.Fatal(err)
		}
		pair.owned = true
		up := exec.Command("kubelab", "--dir", pair.dir, "up", "--bin", built.kube, "--agent", filepath.Join(built.dir, "hawser-agent"),
			"--proxy", opts.proxy, fmt.Sprintf("--flat=%t", opts.flat), "--pods", opts.pods, "--families", cmp.Or(opts.families, "ipv4"),
			"--cni", cmp.Or(opts.cni, "bridge"), "--cni-bin", built.cni)
		for setting := range strings.SplitSeq(opts.settings, ",") {
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
	pair.kubeconfig = filepath.Join(pair.dir, "kubeconfig")
	return pair
}

func required() bool { return os.Getenv("REQUIRE_KERNEL") == "1" }

// needMachine skips the test if the machine lacks a requirement, or fails it with REQUIRE_KERNEL=1.
func needMachine(t *testing.T) {
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

// try runs a program in a directory, with the clusters' kubeconfig.
func (pair *clusterPair) try(ctx context.Context, dir, input string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+pair.kubeconfig, reuseEnv+"="+pair.dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out.String())
	}
	return out.String(), nil
}

// kubectl runs kubectl, which must succeed.
func (pair *clusterPair) kubectl(t *testing.T, cluster string, args ...string) string {
	t.Helper()
	return pair.must(t, "", append([]string{"kubectl", "--context", cluster}, args...)...)
}

// apply applies manifests to a cluster.
func (pair *clusterPair) apply(t *testing.T, cluster, manifests string) {
	t.Helper()
	pair.must(t, manifests, "kubectl", "--context", cluster, "apply", "--server-side", "--force-conflicts", "-f", "-")
}

func (pair *clusterPair) must(t *testing.T, input string, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), conditionTimeout)
	defer cancel()
	out, err := pair.try(ctx, "", input, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// eventually runs a program until it succeeds and its output matches.
func (pair *clusterPair) eventually(t *testing.T, want func(string) bool, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), conditionTimeout)
	defer cancel()
	for {
		out, err := pair.try(ctx, "", "", argv...)
		if err == nil && want(out) {
			return out
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %s\n%s%v", conditionTimeout, strings.Join(argv, " "), out, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// contains returns a condition for eventually: the output contains text.
func contains(text string) func(string) bool {
	return func(out string) bool { return strings.Contains(out, text) }
}

// inPod returns the command that runs argv in a pod: namespace/name, or a name in namespace default.
func inPod(cluster, pod string, argv ...string) []string {
	namespace, name, ok := strings.Cut(pod, "/")
	if !ok {
		namespace, name = "default", pod
	}
	return append([]string{"kubectl", "--context", cluster, "-n", namespace, "exec", name, "--"}, argv...)
}

// workloads deploys whereami and clients in both clusters, and waits for them.
func (pair *clusterPair) workloads(t *testing.T) {
	t.Helper()
	text := workloads(t)
	for _, c := range pair.clusters {
		pair.apply(t, c, strings.ReplaceAll(text, "THISCLUSTER", c))
	}
	for _, c := range pair.clusters {
		pair.kubectl(t, c, "wait", "--for=condition=Ready", "pod", "--all", "-A", "--timeout="+conditionTimeout.String())
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
