//go:build kube

package apply

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hawser.dev/hawser/e2e/kube/api"
)

// recipient is the age recipient of a discarded identity.
const recipient = "age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n"

var hawser string // path of the program; of TestMain alone

// TestMain builds the program that is tested.
func TestMain(m *testing.M) { os.Exit(api.Main(m, &hawser)) }

// testClusterset is a topology and the API servers of its clusters.
type testClusterset struct {
	t       testing.TB
	dir     string
	servers map[string]*api.Server
	config  string // list of kubeconfigs, as in KUBECONFIG
	in      string // standard input of the commands
}

func newTestClusterset(t *testing.T, clusters ...string) *testClusterset {
	t.Helper()
	r := &testClusterset{t: t, dir: t.TempDir(), servers: map[string]*api.Server{}}
	var files []string
	for _, name := range clusters {
		r.servers[name] = api.Start(t, name, "namespace-controller")
		files = append(files, r.servers[name].Kubeconfig)
	}
	r.config = strings.Join(files, string(os.PathListSeparator))
	r.must("keys", "root", "root.key")
	return r
}

// result is the output and the exit code of a command.
type result struct {
	out, err string
	code     int
}

// run runs hawser in the topology's directory.
func (r *testClusterset) run(args ...string) result {
	r.t.Helper()
	cmd := exec.Command(hawser, args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.config, "HAWSER_ROOT_KEY="+filepath.Join(r.dir, "root.key"))
	cmd.Stdin = strings.NewReader(r.in)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	return result{out: out.String(), err: errs.String(), code: cmd.ProcessState.ExitCode()}
}

func (r *testClusterset) must(args ...string) string {
	r.t.Helper()
	return r.expect(0, args...).out
}

func (r *testClusterset) expect(code int, args ...string) result {
	r.t.Helper()
	got := r.run(args...)
	if got.code != code {
		r.t.Fatalf("hawser %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got.code, code, got.out, got.err)
	}
	return got
}

// topology writes clusterset.yaml and its lock.
func (r *testClusterset) topology(clusters []string, exports ...string) {
	r.t.Helper()
	var out strings.Builder
	out.WriteString("apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata: {name: demo}\nspec:\n  clusters:\n")
	for i, c := range clusters {
		_, _ = fmt.Fprintf(&out, `  - name: %s
    podCIDRs: [10.7.0.0/16]
    serviceCIDRs: [10.199.0.0/16]
    recipient: %s
    gateways:
    - {name: %s-a, node: %s-gw, endpoints: [203.0.113.%d]}
`, c, recipient, c, c, 10+i)
	}
	if len(exports) > 0 {
		out.WriteString("  exports:\n")
	}
	for _, e := range exports {
		namespace, name, _ := strings.Cut(e, "/")
		_, _ = fmt.Fprintf(&out, "  - {name: %s, namespace: %s, clusters: [%s], ports: [{name: http, port: 80}]}\n", name, namespace, clusters[0])
	}
	if err := os.WriteFile(filepath.Join(r.dir, "clusterset.yaml"), []byte(out.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.must("allocate")
}
