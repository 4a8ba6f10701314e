package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/lab/netspace"
	"hawser.dev/hawser/lab/whereami"
)

// TestMain makes the test binary stand in for the hawser program where the lab
// starts itself again: `lab daemon` and `lab nsexec`.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "lab" {
		if err := standInForHawser(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}
	os.Exit(m.Run())
}

func standInForHawser(command string, args []string) error {
	switch command {
	case "daemon":
		return Serve(context.Background(), Layout{Dir: args[1]}, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	case "nsexec":
		e, err := netspace.ParseExec(args)
		if err != nil {
			return err
		}
		return e.Replace(os.Environ())
	default: // enter TARGET CMD...: what hawser lab exec and node do
		return NewClient(Layout{Dir: os.Getenv(DirEnv)}).Exec(context.Background(), args[0], args[1:])
	}
}

const labTopology = `apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: test}
spec:
  clusters:
  - name: a
    podCIDRs: [10.7.0.0/16, "fd00:7::/64"]
    serviceCIDRs: [10.77.0.0/16, "fd00:77::/112"]
    gateways: [{name: one, node: a-gw, endpoints: [203.0.113.1]}]
  - name: b
    podCIDRs: [10.7.0.0/16]
    serviceCIDRs: [10.77.0.0/16]
    gateways: [{name: one, node: b-gw, endpoints: [203.0.113.2]}]
`

const labWorkloads = `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {app: web}},
 template: {metadata: {labels: {app: web}}, spec: {containers: [{name: w, image: x, ports: [{containerPort: 8080}, {containerPort: 53, protocol: UDP}]}]}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gw, labels: {app: web}}, spec: {nodeName: a-gw, containers: [{name: w, image: x, ports: [{containerPort: 8080}]}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIPs: [10.77.0.10, "fd00:77::10"], ipFamilyPolicy: RequireDualStack,
 selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}
`

const hostWorkloads = `
{apiVersion: v1, kind: Pod, metadata: {name: host}, spec: {nodeName: b-gw, hostNetwork: true, containers: [{name: w, image: x, ports: [{containerPort: 8080}]}]}}
`

// rig is a running lab of one test.
type rig struct {
	t      *testing.T
	layout Layout
	client *Client
}

func needs(t *testing.T, ok bool, what string) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("REQUIRE_KERNEL") == "1" {
		t.Fatal("needs " + what)
	}
	t.Skip("needs " + what)
}

// newRig makes a lab without reconciler and agents in a folder of its own.
func newRig(t *testing.T) *rig {
	t.Helper()
	needs(t, os.Geteuid() == 0, "root")
	_, err := exec.LookPath("nft")
	needs(t, err == nil, "nftables")
	dir, err := os.MkdirTemp("", "hwlab-")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, layout: Layout{Dir: filepath.Join(dir, "below", "lab")}}
	r.client = NewClient(r.layout)
	t.Cleanup(func() {
		if _, err := Down(context.Background(), r.layout); err != nil {
			t.Errorf("down: %v", err)
		}
		_ = os.RemoveAll(dir)
	})
	for name, text := range map[string]string{
		"clusterset.yaml": labTopology, "workloads/a/web.yaml": labWorkloads, "workloads/b/host.yaml": hostWorkloads,
	} {
		if _, err := writeFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r.up()
	return r
}

func (r *rig) up() {
	r.t.Helper()
	base := filepath.Dir(filepath.Dir(r.layout.Dir))
	err := Up(context.Background(), r.layout, UpOptions{
		Topology: filepath.Join(base, "clusterset.yaml"), Workloads: filepath.Join(base, "workloads"),
		Workers: 1, Bare: true, Timeout: 30 * time.Second, Hawser: "/proc/self/exe", Progress: func(e Event) { r.t.Log(e.Text) },
	})
	if err != nil {
		r.t.Fatalf("up: %v", err)
	}
}

// ns is the namespace of a pod or node.
func (r *rig) ns(target string) string {
	r.t.Helper()
	var at netspace.Exec
	if err := r.client.call(context.Background(), http.MethodGet, "/place?target="+target, nil, &at); err != nil {
		r.t.Fatal(err)
	}
	return at.Net
}

// get asks a URL from inside a pod or node.
func (r *rig) get(target, url string) (whereami.Answer, error) {
	r.t.Helper()
	ns := r.ns(target)
	client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			var conn net.Conn
			err := netspace.Do(ns, func() (err error) {
				conn, err = net.DialTimeout(network, address, 3*time.Second)
				return err
			})
			return conn, err
		},
	}}
	var answer whereami.Answer
	resp, err := client.Get(url)
	if err != nil {
		return answer, err
	}
	defer resp.Body.Close()
	return answer, json.NewDecoder(resp.Body).Decode(&answer)
}

// want asks once and lets ok judge the answer.
func (r *rig) want(target, url string, ok func(whereami.Answer, error) bool) {
	r.t.Helper()
	answer, err := r.get(target, url)
	if !ok(answer, err) {
		r.t.Errorf("%s -> %s: %+v, %v", target, url, answer, err)
	}
}

// eventually asks until an answer comes: neighbours that were given up are looked
// for again only after a while.
func (r *rig) eventually(target, url string) {
	r.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, err := r.get(target, url)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s -> %s: %v", target, url, err)
		}
	}
}

func clientIs(addr string) func(whereami.Answer, error) bool {
	return func(a whereami.Answer, err error) bool { return err == nil && a.Client == addr }
}

func (r *rig) pod(id string) PodStatus {
	r.t.Helper()
	s, err := r.client.Status(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range s.Pods {
		if p.Cluster+"/"+p.Namespace+"/"+p.Name == id {
			return p
		}
	}
	r.t.Fatalf("no pod %s", id)
	return PodStatus{}
}

// TestPacketsArrive: pod addresses, ClusterIPs in both families, from pods and
// nodes, on the same node and across, with the source that kube-proxy leaves.
func TestPacketsArrive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	me, gw, web := r.pod("a/default/client"), r.pod("a/default/gw"), r.pod("a/default/web-1")
	r.want("a/default/client", "http://"+web.IP+":8080", clientIs(me.IP))
	r.want("a/default/client", "http://"+gw.IP+":8080", clientIs(me.IP))
	r.want("a/default/client", "http://["+gw.IPs[1]+"]:8080", clientIs(me.IPs[1]))
	r.want("a/default/gw", "http://"+web.IP+":8080/any/path", clientIs(gw.IP))
	r.want("a/a-gw", "http://"+gw.IP+":8080", clientIs("10.7.0.1"))
	r.want("b/default/client", "http://172.18.0.2:8080", clientIs("172.18.0.3")) // masqueraded to its node
	for _, url := range []string{"http://10.77.0.10", "http://[fd00:77::10]"} {
		pods := map[string]bool{}
		for range 60 {
			answer, err := r.get("a/default/client", url)
			if err != nil {
				t.Fatal(err)
			}
			if answer.Client != me.IP && answer.Client != me.IPs[1] {
				t.Fatalf("client seen as %s", answer.Client)
			}
			pods[answer.Pod] = true
		}
		if len(pods) != 3 {
			t.Errorf("60 requests to %s reached %v, want all three pods", url, pods)
		}
	}
	r.want("a/a-w1", "http://10.77.0.10", func(a whereami.Answer, err error) bool { return err == nil && a.Cluster == "a" })
	for range 10 { // sometimes it reaches itself, which needs the hairpin
		r.want("a/default/web-1", "http://10.77.0.10", func(_ whereami.Answer, err error) bool { return err == nil })
	}
	// The second cluster has the same addresses and knows nothing of this one.
	r.want("b/default/client", "http://10.77.0.10", func(_ whereami.Answer, err error) bool { return err != nil })
	r.udp("a/default/client", web.IP+":53", web.Name)
}

func (r *rig) udp(from, to, wantPod string) {
	r.t.Helper()
	err := netspace.Do(r.ns(from), func() error {
		conn, err := net.DialTimeout("udp", to, time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := errors.Join(conn.SetDeadline(time.Now().Add(3*time.Second)), lastOf(conn.Write([]byte("who")))); err != nil {
			return err
		}
		buffer := make([]byte, 1500)
		n, err := conn.Read(buffer)
		if err == nil && !strings.Contains(string(buffer[:n]), wantPod) {
			err = fmt.Errorf("answer %s", buffer[:n])
		}
		return err
	})
	if err != nil {
		r.t.Errorf("UDP %s -> %s: %v", from, to, err)
	}
}

func lastOf(_ int, err error) error { return err }

// TestChanges: readiness, scaling and deletion reach the services at once, and
// what cannot be done changes nothing.
func TestChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	zero, two := int32(0), int32(2)
	do := func(c Change) {
		t.Helper()
		if err := r.client.Change(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	onGateway := func(a whereami.Answer, err error) bool { return err == nil && a.Pod == "gw" }
	do(Change{Cluster: "a", Object: "default/deployment/web", Replicas: &zero})
	r.want("a/default/client", "http://10.77.0.10", onGateway)
	do(Change{Cluster: "a", Pod: "default/gw", Ready: false})
	r.want("a/default/client", "http://10.77.0.10", func(_ whereami.Answer, err error) bool {
		return err != nil && strings.Contains(err.Error(), "refused")
	})
	do(Change{Cluster: "a", Pod: "default/gw", Ready: true})
	r.want("a/default/client", "http://10.77.0.10", onGateway)
	err := r.client.Change(ctx, Change{Cluster: "a", File: "x.yaml", Apply: "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {nodeName: zz, containers: []}}"})
	if err == nil || !strings.Contains(err.Error(), `no node "zz"`) {
		t.Errorf("a pod on an unknown node: %v", err)
	}
	do(Change{Cluster: "a", Object: "default/deployment/web", Replicas: &two})
	do(Change{Cluster: "a", Object: "default/Pod/gw"})
	if err := r.client.Change(ctx, Change{Cluster: "c", Object: "default/Pod/gw"}); err == nil || !strings.Contains(err.Error(), "there are a, b") {
		t.Errorf("an unknown cluster: %v", err)
	}
	for range 5 {
		r.want("a/default/client", "http://10.77.0.10", func(a whereami.Answer, err error) bool { return err == nil && strings.HasPrefix(a.Pod, "web-") })
	}
}

// TestFaults: a link is cut, delayed and lossy, and a node without power is gone
// with its pods; all of it is mended.
func TestFaults(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	do := func(f Fault) {
		t.Helper()
		if err := r.client.Fault(ctx, f); err != nil {
			t.Fatal(err)
		}
	}
	const far = "http://203.0.113.2:8080" // from one gateway to the other, over the wide area
	reached := func(_ whereami.Answer, err error) bool { return err == nil }
	lost := func(_ whereami.Answer, err error) bool { return err != nil }
	r.want("a/a-gw", far, clientIs("203.0.113.1"))
	do(Fault{Kind: "delay", Target: "a/a-gw", Value: "50ms"})
	began := time.Now()
	r.want("a/a-gw", far, reached)
	if took := time.Since(began); took < 200*time.Millisecond { // two round trips of 100 ms
		t.Errorf("a request over a link with 50ms each way took %s", took)
	}
	do(Fault{Kind: "loss", Target: "a/a-gw", Value: "100%"})
	r.want("a/a-gw", far, lost)
	do(Fault{Kind: "delay", Target: "a/a-gw", Value: "0"})
	r.want("a/a-gw", far, lost)
	do(Fault{Kind: "loss", Target: "a/a-gw", Value: "0"})
	r.eventually("a/a-gw", far)
	do(Fault{Kind: "cut", Target: "a/a-gw"})
	r.want("a/a-gw", far, lost)
	do(Fault{Kind: "heal", Target: "a/a-gw"})
	r.eventually("a/a-gw", far)

	do(Fault{Kind: "power-off", Target: "a/a-w1"})
	if p := r.pod("a/default/web-1"); p.Ready || p.Running {
		t.Errorf("a pod of a node without power: %+v", p)
	}
	r.want("a/default/gw", "http://10.77.0.10", func(a whereami.Answer, err error) bool { return err == nil && a.Pod == "gw" })
	do(Fault{Kind: "power-on", Target: "a/a-w1"})
	r.want("a/default/client", "http://"+r.pod("a/default/web-1").IP+":8080", reached)
}

// TestDelayKeepsBulk: a delayed link carries a stream of large segments unharmed.
func TestDelayKeepsBulk(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.client.Fault(context.Background(), Fault{Kind: "delay", Target: "b/b-gw", Value: "1ms"}); err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	var conn net.Conn
	err := errors.Join(
		netspace.Do(r.ns("b/b-gw"), func() (err error) { listener, err = net.Listen("tcp", "203.0.113.2:9000"); return err }),
		netspace.Do(r.ns("a/a-gw"), func() (err error) { conn, err = net.Dial("tcp", "203.0.113.2:9000"); return err }),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const size = 8 << 20
	got := make(chan int64, 1)
	go func() {
		in, err := listener.Accept()
		if err != nil {
			got <- -1
			return
		}
		n, _ := io.Copy(io.Discard, in)
		got <- n
	}()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if n := <-got; n != size {
		t.Errorf("%d of %d bytes arrived", n, size)
	}
}

// TestExec: standard streams, exit code, resolver, host name and a private /run.
func TestExec(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	run := func(target, script string) (string, int) {
		cmd := exec.Command("/proc/self/exe", "lab", "enter", target, "sh", "-c", script)
		cmd.Env = append(os.Environ(), DirEnv+"="+r.layout.Dir)
		cmd.Stdin = strings.NewReader("from outside\n")
		out, err := cmd.Output()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := run("a/default/client", "cat; hostname; cat /etc/resolv.conf; exit 7")
	want := "from outside\nclient\nnameserver 169.254.73.53\nsearch default.svc.clusterset.local svc.clusterset.local\noptions ndots:5\n"
	if out != want || code != 7 {
		t.Errorf("exit %d, output:\n%s", code, out)
	}
	if out, _ = run("a/a-gw", "touch /run/mine; hostname; ls /sys/class/net | tr '\\n' ' '"); !strings.HasPrefix(out, "a-gw\neth0 lo veth") {
		t.Errorf("on a node:\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(r.layout.Node("a-gw"), "run", "mine")); err != nil {
		t.Errorf("a node's /run: %v", err)
	}
	if _, err := os.Stat("/run/mine"); err == nil {
		t.Error("a node wrote to the host's /run")
	}
}

// TestNothingIsLeft: down removes a lab that runs, and one whose daemon was
// killed while a program ran in a pod; up in between starts it again.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	config, err := readConfig(r.layout)
	if err != nil {
		t.Fatal(err)
	}
	orphan := exec.Command("/proc/self/exe", "lab", "nsexec", "--net", r.ns("a/default/client"), "--", "sleep", "600")
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = orphan.Wait() }()
	killDaemon(t, r.layout)
	if _, err := r.client.Status(context.Background()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("status of a killed lab: %v", err)
	}
	address := "http://" + "10.77.0.10"
	r.up()
	r.want("a/default/client", address, func(_ whereami.Answer, err error) bool { return err == nil })
	r.up() // once more on a lab that runs
	inodes := netspace.Inodes(r.layout.namespaces())
	if len(inodes) < 8 {
		t.Fatalf("%d namespaces", len(inodes))
	}
	killDaemon(t, r.layout)
	if was, err := Down(context.Background(), r.layout); err != nil || !was {
		t.Fatalf("down: %t, %v", was, err)
	}
	if left := netspace.Processes(inodes, markEnv+"="+config.ID); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), r.layout.Dir) {
		t.Errorf("mounts left: %v\n%s", err, mounts)
	}
	if _, err := os.Stat(filepath.Dir(r.layout.Dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder left: %v", err)
	}
	if was, err := Down(context.Background(), r.layout); err != nil || was {
		t.Errorf("down without a lab: %t, %v", was, err)
	}
}

func killDaemon(t *testing.T, l Layout) {
	t.Helper()
	var daemon netspace.Process
	raw, err := os.ReadFile(l.daemon())
	if err == nil {
		err = json.Unmarshal(raw, &daemon)
	}
	if err == nil {
		err = netspace.Kill(context.Background(), []netspace.Process{daemon})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestUpRefuses: what is wrong is said before anything is made.
func TestUpRefuses(t *testing.T) {
	t.Parallel()
	needs(t, os.Geteuid() == 0, "root")
	dir := t.TempDir()
	broken := filepath.Join(dir, "clusterset.yaml")
	text := strings.Replace(labTopology, "10.7.0.0/16, ", "10.7.0.1/16, ", 1)
	if err := os.WriteFile(broken, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(dir, "full")
	if _, err := writeFile(filepath.Join(full, "mine"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, dir, want string }{
		{"topology", filepath.Join(dir, "lab"), "clusterset.yaml:8:"},
		{"folder of somebody else", full, "is not empty and not a lab"},
	}
	for _, tt := range tests {
		l := Layout{Dir: tt.dir}
		err := Up(context.Background(), l, UpOptions{Topology: broken, Bare: true, Hawser: "/proc/self/exe", Progress: func(Event) {}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q in it", tt.name, err, tt.want)
		}
		if _, err := Down(context.Background(), l); err != nil {
			t.Errorf("%s: down: %v", tt.name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(full, "mine")); err != nil {
		t.Errorf("somebody else's file: %v", err)
	}
}
