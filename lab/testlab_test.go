package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/lab/netnsexec"
	"hawser.dev/hawser/lab/whereami"
)

// TestMain makes the test binary act as the hawser program for the commands that the lab starts:
// `lab daemon` and `lab nsexec`.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "lab" {
		if err := fakeHawser(os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}
	os.Exit(m.Run())
}

func fakeHawser(command string, args []string) error {
	switch command {
	case "daemon":
		return Serve(context.Background(), Layout{Dir: args[1]}, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	case "nsexec":
		e, err := netnsexec.ParseExec(args)
		if err != nil {
			return err
		}
		return e.Replace(os.Environ())
	case "hello": // a pod's program: says where it runs
		listener, err := net.Listen("tcp", ":8081")
		if err != nil {
			return err
		}
		return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			name, _ := os.Hostname()
			_ = json.NewEncoder(w).Encode(whereami.Answer{Identity: whereami.Identity{Pod: name, Namespace: strings.Join(args, " ")}})
		}))
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
 template: {metadata: {labels: {app: web}}, spec: {containers: [{name: w, image: x,
 ports: [{containerPort: 8080}, {containerPort: 53, protocol: UDP}]}]}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gw, labels: {app: web}},
 spec: {nodeName: a-gw, containers: [{name: w, image: x, ports: [{containerPort: 8080}]}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIPs: [10.77.0.10, "fd00:77::10"], ipFamilyPolicy: RequireDualStack,
 selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}
`

const hostWorkloads = `
{apiVersion: v1, kind: Pod, metadata: {name: host},
 spec: {nodeName: b-gw, hostNetwork: true, containers: [{name: w, image: x, ports: [{containerPort: 8080}]}]}}
`

// testLab is a running lab of one test.
type testLab struct {
	t       *testing.T
	options UpOptions
	layout  Layout
	client  *Client
}

func require(t *testing.T, ok bool, what string) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("REQUIRE_KERNEL") == "1" {
		t.Fatal("needs " + what)
	}
	t.Skip("needs " + what)
}

// newTestLab makes a lab without reconciler and agents in a directory of its own.
func newTestLab(t *testing.T) *testLab {
	t.Helper()
	return newTestLabFrom(t, UpOptions{Workers: 1}, map[string]string{
		"clusterset.yaml": labTopology, "workloads/a/web.yaml": labWorkloads, "workloads/b/host.yaml": hostWorkloads,
	})
}

// newTestLabFrom makes a lab of the files.
func newTestLabFrom(t *testing.T, o UpOptions, files map[string]string) *testLab {
	t.Helper()
	require(t, os.Geteuid() == 0, "root")
	_, err := exec.LookPath("nft")
	require(t, err == nil, "nftables")
	dir, err := os.MkdirTemp("", "hwlab-")
	if err != nil {
		t.Fatal(err)
	}
	r := &testLab{t: t, options: o, layout: Layout{Dir: filepath.Join(dir, "below", "lab")}}
	r.client = NewClient(r.layout)
	t.Cleanup(func() {
		if _, err := Down(context.Background(), r.layout); err != nil {
			t.Errorf("down: %v", err)
		}
		_ = os.RemoveAll(dir)
	})
	for name, text := range files {
		if _, err := writeFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r.up()
	return r
}

func (r *testLab) up() {
	r.t.Helper()
	base := filepath.Dir(filepath.Dir(r.layout.Dir))
	o := r.options
	o.Topology, o.NoHawser, o.Timeout, o.Hawser = filepath.Join(base, "clusterset.yaml"), true, 30*time.Second, "/proc/self/exe"
	o.Progress = func(e Event) { r.t.Log(e.Text) }
	for path, set := range map[string]*string{"workloads": &o.Workloads, "underlay.yaml": &o.Underlay} {
		if _, err := os.Stat(filepath.Join(base, path)); err == nil {
			*set = filepath.Join(base, path)
		}
	}
	err := Up(context.Background(), r.layout, o)
	if err != nil {
		r.t.Fatalf("up: %v", err)
	}
}

// ns is the namespace of a pod or node.
func (r *testLab) ns(target string) string {
	r.t.Helper()
	var at netnsexec.Exec
	if err := r.client.call(context.Background(), http.MethodGet, "/place?target="+target, nil, &at); err != nil {
		r.t.Fatal(err)
	}
	return at.Net
}

// get asks a URL from inside a pod or node.
func (r *testLab) get(target, url string) (whereami.Answer, error) {
	r.t.Helper()
	ns := r.ns(target)
	client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			var conn net.Conn
			err := netnsexec.Do(ns, func() (err error) {
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
func (r *testLab) want(target, url string, ok func(whereami.Answer, error) bool) {
	r.t.Helper()
	answer, err := r.get(target, url)
	if !ok(answer, err) {
		r.t.Errorf("%s -> %s: %+v, %v", target, url, answer, err)
	}
}

// eventually asks until an answer comes: neighbours that were given up are looked
// for again only after a while.
func (r *testLab) eventually(target, url string) {
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

func (r *testLab) pod(id string) PodStatus {
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
