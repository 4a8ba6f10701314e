//go:build kube

package api

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	token = "test"
	limit = 3 * time.Minute
)

// Server is one API server.
type Server struct {
	URL        string
	Kubeconfig string // path, for an administrator; its only context has the server's name
	Kubectl    string // path of the program
	dir        string
}

// Start starts an API server and the named controllers (such as namespace-controller) until the
// test ends. hack/setup-kube.sh builds missing programs.
func Start(t testing.TB, name string, controllers ...string) *Server {
	t.Helper()
	bin := Programs(t, "setup-kube.sh")
	ports := FreePorts(t, 3)
	s := &Server{URL: "https://127.0.0.1:" + ports[2], dir: t.TempDir(), Kubectl: filepath.Join(bin, "kubectl")}
	s.Kubeconfig = filepath.Join(s.dir, "kubeconfig")
	store := "http://127.0.0.1:" + ports[0]
	peer := "http://127.0.0.1:" + ports[1]
	key := writeKey(t, filepath.Join(s.dir, "accounts.key"))
	write(t, filepath.Join(s.dir, "tokens"), token+`,admin,admin,"system:masters"`+"\n")
	write(t, s.Kubeconfig, kubeconfig(name, s.URL))

	s.run(t, bin, "etcd", "--name=test", "--data-dir="+filepath.Join(s.dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+store, "--advertise-client-urls="+store,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=test="+peer)
	s.run(t, bin, "kube-apiserver", "--etcd-servers="+store, "--secure-port="+ports[2], "--bind-address=127.0.0.1",
		"--cert-dir="+filepath.Join(s.dir, "certs"), "--token-auth-file="+filepath.Join(s.dir, "tokens"),
		"--service-cluster-ip-range=10.199.0.0/16", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true", "--profiling=false",
		"--disable-admission-plugins=ServiceAccount", // its controller does not run
		"--service-account-issuer=https://test", "--service-account-key-file="+key, "--service-account-signing-key-file="+key)
	s.until(t, "get", "--raw", "/readyz")
	if len(controllers) > 0 {
		s.run(t, bin, "kube-controller-manager", "--kubeconfig="+s.Kubeconfig, "--leader-elect=false", "--secure-port=0",
			"--controllers="+strings.Join(controllers, ","))
	}
	return s
}

// K runs kubectl and returns its output.
func (s *Server) K(t testing.TB, args ...string) string {
	t.Helper()
	out, err := s.Try(args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Try is K for commands that may fail.
func (s *Server) Try(args ...string) (string, error) {
	cmd := exec.Command(s.Kubectl, append([]string{"--kubeconfig=" + s.Kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Apply applies manifests with kubectl.
func (s *Server) Apply(t testing.TB, manifests string, args ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifests.yaml")
	write(t, file, manifests)
	s.K(t, append([]string{"apply", "--server-side", "-f", file}, args...)...)
}

// Define applies the definitions that Hawser renders.
func (s *Server) Define(t testing.TB) {
	t.Helper()
	s.K(t, "apply", "--server-side", "-f", filepath.Join(module(t), "render", "base", "crds.yaml"))
	s.Defined(t)
}

// Defined waits until all definitions are established.
func (s *Server) Defined(t testing.TB) {
	t.Helper()
	s.until(t, "wait", "--for=condition=Established", "--timeout="+limit.String(), "crd", "--all") // it fails for one without conditions
}

// module returns the directory of Hawser's module.
func module(t testing.TB) string {
	t.Helper()
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatalf("find the module's directory: %v", err)
	}
	return strings.TrimSpace(string(root))
}

// Programs returns the directory of the programs of a script in hack. The script builds missing
// programs.
func Programs(t testing.TB, script string, args ...string) string {
	t.Helper()
	setup := exec.Command(filepath.Join(module(t), "hack", script), args...)
	setup.Stderr = os.Stderr
	out, err := setup.Output()
	if err != nil {
		t.Skipf("hack/%s: %v", script, err)
	}
	return strings.TrimSpace(string(out))
}

func (s *Server) run(t testing.TB, bin, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Dir = s.dir
	Run(t, cmd)
}

// Run starts a program and kills it at the end of the test. If the test failed, Run logs the end of
// the program's output.
func Run(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	log := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // an error after Kill
		if text := log.Bytes(); t.Failed() {
			t.Logf("%s: ...%s", filepath.Base(cmd.Path), text[max(0, len(text)-1500):])
		}
	})
}

// until runs kubectl until it succeeds.
func (s *Server) until(t testing.TB, args ...string) {
	t.Helper()
	var out string
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if out, err = s.Try(args...); err == nil {
			return
		}
	}
	t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
}

// FreePorts returns unused ports.
func FreePorts(t testing.TB, n int) []string {
	t.Helper()
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, port)
	}
	return out
}

func writeKey(t testing.TB, file string) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	write(t, file, string(pem.EncodeToMemory(block)))
	return file
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func kubeconfig(name, url string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: %[1]s
contexts: [{name: %[1]s, context: {cluster: %[1]s, user: %[1]s}}]
clusters: [{name: %[1]s, cluster: {server: %[2]q, insecure-skip-tls-verify: true}}]
users: [{name: %[1]s, user: {token: %[3]s}}]
`, name, url, token)
}
