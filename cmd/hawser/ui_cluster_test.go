//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/internal/cli/clitest"
	"hawser.dev/hawser/nodeagent/cluster/kube/kubetest"
	"hawser.dev/hawser/view/clustermap"
)

// pagePod runs hawser ui with the arguments of the rendered Deployment, a cluster's API and the
// mounted files.
type pagePod struct {
	t            *testing.T
	c            *clitest.Repo
	api          *kubetest.Server
	fabric       string
	port, stdout string
	errors       *os.File
}

const pageToken = "0123456789abcdef0123456789abcdef"

// mount writes the rendered fabric like the kubelet mounts the ConfigMap.
func (p *pagePod) mount(topology string) {
	p.t.Helper()
	p.c.Write(filepath.Join(p.c.Dir, "work", "clusterset.yaml"), topology)
	p.c.Must(filepath.Join(p.c.Dir, "work"), "hawser allocate && rm -rf ../tree && hawser render --root-key ../root.key --out ../tree && hawser keys signers --root-key ../root.key --cluster g1 >../signers")
	var m struct {
		BinaryData, Data map[string]string
	}
	if err := yaml.Unmarshal([]byte(p.c.Read("tree/base/fabric.yaml")), &m); err != nil {
		p.t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(m.BinaryData["fabric.json.gz"])
	if err != nil || m.Data["fabric.sig"] == "" {
		p.t.Fatalf("the fabric is not signed: %v", err)
	}
	p.c.Write(filepath.Join(p.fabric, "fabric.sig"), m.Data["fabric.sig"])
	p.c.Write(filepath.Join(p.fabric, "fabric.json.gz"), string(raw))
}

func newPagePod(t *testing.T) *pagePod {
	t.Helper()
	p := &pagePod{t: t, c: &clitest.Repo{T: t, Dir: t.TempDir()}, api: kubetest.New(t)}
	p.fabric = filepath.Join(p.c.Dir, "mounted")
	for _, dir := range []string{p.fabric, filepath.Join(p.c.Dir, "work")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.c.Must(p.c.Dir, "hawser keys root root.key")
	var err error
	if p.errors, err = os.Create(filepath.Join(p.c.Dir, "errors")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.errors.Close() })
	return p
}

// start starts hawser ui and reads its address.
func (p *pagePod) start(args ...string) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "hawser", append([]string{"ui", "--in-cluster", "--cluster=g1", "--kubeconfig=" + p.api.Kubeconfig(p.t), "--fabric=" + p.fabric,
		"--trust=" + filepath.Join(p.c.Dir, "signers"), "--state=" + p.t.TempDir(), "--listen=127.0.0.1:0"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = p.errors
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	for range 3 { // a title, and two URLs
		line, err := lines.ReadString('\n')
		if err != nil {
			p.t.Fatalf("the page did not start: %v\n%s", err, p.c.Read("errors"))
		}
		p.stdout += line
		if at, err := url.Parse(strings.Fields(line)[0]); err == nil && at.Hostname() == "127.0.0.1" {
			p.port = at.Port()
		}
	}
}

func (p *pagePod) get(path string) (int, string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+p.port+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Host = "map.example.com"
	request.Header.Set("Authorization", "Bearer "+pageToken)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer.StatusCode, string(raw)
}

// pageMap is the state that the page shows.
type pageMap struct {
	Clusterset, LiveCluster, Error string
	Unreachable                    []struct{ Agent, Error string }
	Clusters                       []clustermap.Cluster
	Links                          []clustermap.Link
}

// waitFor waits until want accepts the state of the page.
func (p *pagePod) waitFor(what string, want func(pageMap) bool) pageMap {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+p.port+"/api/events", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+pageToken)
	response, err := http.DefaultClient.Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		p.t.Fatalf("events: %v", err)
	}
	defer func() { _ = response.Body.Close() }()
	var d pageMap
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		_, body := p.get("/api/map")
		d = pageMap{}
		if err := json.Unmarshal([]byte(body), &d); err != nil {
			p.t.Fatalf("%v: %s", err, body)
		}
		if want(d) {
			return d
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("waited for %s; have %+v\n%s", what, d, p.c.Read("errors"))
		}
	}
}

func (d pageMap) link(state string) bool { return len(d.Links) == 1 && d.Links[0].State == state }

// hawserNode returns the HawserNode of g1's gateway.
func hawserNode(state string) string {
	return "apiVersion: hawser.dev/v1alpha1\nkind: HawserNode\nmetadata: {name: n1}\nstatus: {cluster: g1, role: gateway, version: \"<script>alert(1)</script>\", " +
		"problems: [{code: changes-failed, severity: error, text: \"<img src=x onerror=alert(1)>\"}], conditions: [{type: Ready, status: \"True\", reason: Converged, message: \"\", lastTransitionTime: \"2026-01-02T03:04:05Z\"}], " +
		"linkStates: [{gateway: a, remoteCluster: g2, remoteGateway: a, state: " + state + ", active: true, rttMicroseconds: 1234, lossPerMille: 20}]}"
}

// agentPod returns the pod of the agent on g1's gateway.
func agentPod(ready string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: hawser-gateway-x, namespace: hawser-system, " +
		"ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: hawser-gateway, uid: u1, controller: true}]}\nspec: {nodeName: n1}\n" +
		"status: {phase: Running, conditions: [{type: Ready, status: \"" + ready + "\", lastTransitionTime: \"2026-01-02T03:04:05Z\"}]}"
}

var twoClusters = clitest.Topology + "  - name: g2\n    podCIDRs: [10.8.0.0/16]\n    serviceCIDRs: [10.88.0.0/16]\n" +
	"    recipient: age1c4qh3aws6qp9yjn53gugn2gpfurpcw2rj65zquuj0jmj87zmwcjs3mhndp\n    gateways: [{name: a, node: n2, endpoints: [203.0.113.2]}]\n" +
	"  exports:\n  - {name: web, namespace: shop, clusters: [g2], ports: [{port: 80}]}\n"

// TestPageInCluster runs the program. The page shows the signed fabric and the HawserNodes of
// working agents, and no unknown state.
func TestPageInCluster(t *testing.T) {
	t.Parallel()
	p := newPagePod(t)
	p.mount(twoClusters)
	p.c.Write(filepath.Join(p.c.Dir, "token"), pageToken+"\n")
	p.api.Put(t, hawserNode("Up"))
	p.api.Put(t, agentPod("True"))
	p.start("--host=map.example.com", "--token-file="+filepath.Join(p.c.Dir, "token"))
	if strings.Contains(p.stdout, pageToken) || !strings.Contains(p.stdout, "https://map.example.com/?#token=...") {
		t.Errorf("printed %s", p.stdout)
	}
	// The HawserNodes may arrive before the pods: until then the page has an error.
	d := p.waitFor("the link and the pods", func(d pageMap) bool { return d.link(clustermap.Up) && d.Error == "" })
	if d.LiveCluster != "g1" || d.Clusterset != "demo" || d.Links[0].RTT != 1234 || d.Links[0].Loss != 0.02 || len(d.Unreachable) != 0 ||
		d.Clusters[0].State != clustermap.Up || d.Clusters[1].State != clustermap.Unknown {
		t.Errorf("drawn %+v", d)
	}
	p.api.Put(t, hawserNode("Down"))
	p.waitFor("the link that fell", func(d pageMap) bool { return d.link(clustermap.Down) && d.Clusters[1].State == clustermap.Unknown })
	if code, body := p.get("/readyz"); code != http.StatusOK {
		t.Errorf("not ready: %s", body)
	}
	if code, body := p.get("/api/node?cluster=g1&node=n1"); code != http.StatusOK || !strings.Contains(body, `"remoteCluster":"g2"`) || strings.ContainsAny(body, "<>") {
		t.Errorf("the node: %s", body)
	}
	if code, body := p.get("/api/explain?from=g1&to=web.shop:80"); code != http.StatusOK || !strings.Contains(body, `"allowed":true`) {
		t.Errorf("explain: %d %s", code, body)
	}
	if code, body := p.get("/api/matrix"); code != http.StatusOK || !strings.Contains(body, "shop/web") {
		t.Errorf("matrix: %d %s", code, body)
	}
	for _, path := range []string{"/api/history", "/api/plan?from=&to="} {
		if code, body := p.get(path); code != http.StatusBadRequest || !strings.Contains(body, "not on the page of a cluster: run hawser ui on your machine") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	p.api.Put(t, agentPod("False"))
	p.waitFor("an agent that hangs", func(d pageMap) bool {
		return len(d.Unreachable) == 1 && d.Unreachable[0].Error == "pod hawser-gateway-x is not ready" && d.link(clustermap.Unknown)
	})
	p.api.Put(t, agentPod("True"))
	p.waitFor("an agent that works again", func(d pageMap) bool { return len(d.Unreachable) == 0 })
	p.api.SetForbidden("pods", true)
	p.api.SetUnreachable(true)
	p.api.SetUnreachable(false)
	p.waitFor("an error about pods", func(d pageMap) bool { return strings.Contains(d.Error, "read the pods of hawser-system") })
	p.api.SetForbidden("pods", false)
	p.waitFor("the pods", func(d pageMap) bool { return d.Error == "" })
	p.api.Delete("hawsernodes", "n1")
	p.waitFor("a gateway without a report", func(d pageMap) bool {
		return len(d.Unreachable) == 1 && d.Unreachable[0].Agent == "g1/a" && d.link(clustermap.Unknown)
	})
	p.api.SetForbidden("hawsernodes", true)
	p.api.SetUnreachable(true)
	p.api.SetUnreachable(false)
	p.waitFor("word that it may not read", func(d pageMap) bool { return strings.Contains(d.Error, "read HawserNodes") })
	for _, request := range p.api.Requests() {
		if !strings.Contains(request, "/hawsernodes") && !strings.Contains(request, "/namespaces/hawser-system/pods") {
			t.Errorf("request %s", request)
		}
	}
}

// TestPageVerifiesFabric tests that the page rejects a fabric without a signature of the pinned
// signers, and keeps the last valid one.
func TestPageVerifiesFabric(t *testing.T) {
	t.Parallel()
	p := newPagePod(t)
	p.mount(twoClusters)
	validSignature := p.c.Read("mounted/fabric.sig")
	if err := os.Remove(filepath.Join(p.fabric, "fabric.sig")); err != nil {
		t.Fatal(err)
	}
	p.c.Write(filepath.Join(p.c.Dir, "token"), pageToken)
	p.start("--host=map.example.com", "--token-file="+filepath.Join(p.c.Dir, "token"))
	p.waitFor("word of the fabric", func(d pageMap) bool { return d.Error != "" && len(d.Clusters) == 0 })
	if code, _ := p.get("/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("ready without a fabric: %d", code)
	}
	p.c.Write(filepath.Join(p.fabric, "fabric.sig"), validSignature)
	p.waitFor("the fabric", func(d pageMap) bool { return len(d.Clusters) == 2 })
	other := newPagePod(t) // signed with another root key
	other.mount(strings.Replace(twoClusters, "name: demo", "name: evil", 1))
	for _, name := range []string{"fabric.sig", "fabric.json.gz"} {
		p.c.Write(filepath.Join(p.fabric, name), other.c.Read(filepath.Join("mounted", name)))
	}
	d := p.waitFor("word of the other fabric", func(d pageMap) bool { return d.Error != "" })
	if d.Clusterset != "demo" || len(d.Clusters) != 2 {
		t.Errorf("shown is %+v", d)
	}
	if code, _ := p.get("/readyz"); code != http.StatusOK {
		t.Errorf("a page with the last good fabric is not ready: %d", code)
	}
}

// TestPageFlags tests that conflicting flags are refused with the next step.
func TestPageFlags(t *testing.T) {
	t.Parallel()
	c := &clitest.Repo{T: t, Dir: t.TempDir()}
	c.Write(filepath.Join(c.Dir, "short"), "abc")
	c.Write(filepath.Join(c.Dir, "kubeconfig"), "apiVersion: v1\nkind: Config\n")
	for args, want := range map[string]string{
		"--host map.example.com":                      "--host is for a page in a cluster: add --in-cluster",
		"--in-cluster":                                "--in-cluster: name the cluster that the page is in (--cluster fra)",
		"--in-cluster --cluster a,b":                  "--in-cluster: name the cluster that the page is in (--cluster fra)",
		"--in-cluster --cluster a --live":             "it asks no agents",
		"--in-cluster --cluster a clusterset.yaml":    "the topology is the mounted fabric (--fabric), and no file",
		"--in-cluster --cluster a":                    "--kubernetes: unable to load in-cluster configuration",
		"--in-cluster --cluster a --token-file short": "short: the token has 3 characters, 32 are needed (openssl rand -hex 32 makes one)",
		"--in-cluster --cluster a --token-file none":  "read token: open none: no such file",
		"--listen 0.0.0.0:8080":                       "give a loopback address and a port",
	} {
		if out, err := c.Run(c.Dir, "hawser ui "+args, "KUBERNETES_SERVICE_HOST="); err == nil || !strings.Contains(out, want) {
			t.Errorf("hawser ui %s: %v, want %q in\n%s", args, err, want, out)
		}
	}
}
