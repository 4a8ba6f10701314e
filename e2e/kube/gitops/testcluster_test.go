//go:build kube

package gitops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/e2e/kube/api"
)

// recipient is the age recipient of a discarded identity.
const recipient = "age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n"

// conditionTimeout bounds the wait for a condition on a slow machine. Flux retries after
// half a minute, Argo CD after at most three minutes.
const conditionTimeout = 5 * time.Minute

// page is the documentation page with the objects to apply.
const page = "../../../docs/gitops.md"

var hawser string // path of the program; of TestMain alone

// TestMain builds the program that is tested.
func TestMain(m *testing.M) { os.Exit(api.Main(m, &hawser)) }

// testCluster is the cluster g1 with the nodes n1, n2 and n3, and the served repository of its topology.
type testCluster struct {
	*api.Server
	nodes *Nodes
	repo  string
	url   string
}

// controllers are the Kubernetes controllers for the tests. Without the garbage collector, objects
// that Argo CD deletes would stay.
var controllers = []string{"namespace-controller", "daemonset-controller", "garbage-collector-controller"}

func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	r := &testCluster{Server: api.Start(t, "g1", controllers...),
		repo: filepath.Join(t.TempDir(), "topology")}
	r.nodes = StartNodes(t, r.Kubeconfig, "n1", "n2", "n3")
	r.hawser(t, 0, "keys", "root", filepath.Join(filepath.Dir(r.repo), "root.key"))
	mustGit(t, filepath.Dir(r.repo), "init", "-q", "-b", "main", r.repo)
	r.url = Serve(t, r.repo)
	return r
}

func mustGit(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=test", "-c", "user.email=test@example.org"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// hawser runs the program, which must end with an exit code.
func (r *testCluster) hawser(t testing.TB, code int, args ...string) string {
	t.Helper()
	cmd := exec.Command(hawser, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.Kubeconfig)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("hawser %s: %v, want exit code %d\n%s", strings.Join(args, " "), err, code, out)
	}
	return string(out)
}

// commit commits a file of the topology's directory.
func (r *testCluster) commit(t testing.TB, file, text string) {
	t.Helper()
	path := filepath.Join(r.repo, file)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	mustGit(t, r.repo, "add", "-A")
	mustGit(t, r.repo, "commit", "-q", "-m", "change "+file)
}

// reconcile publishes the newest commit, and returns the new commit of the publish branch.
func (r *testCluster) reconcile(t testing.TB, code int) string {
	t.Helper()
	r.hawser(t, code, "reconcile", "--once", "--repo", r.repo, "--root-key", filepath.Join(filepath.Dir(r.repo), "root.key"))
	return mustGit(t, r.repo, "rev-parse", "rendered")
}

// publish commits a topology and publishes it.
func (r *testCluster) publish(t testing.TB, topology string) string {
	t.Helper()
	r.commit(t, "clusterset.yaml", topology)
	return r.reconcile(t, 0)
}

// published returns a file of the publish branch.
func (r *testCluster) published(t testing.TB, file string) string {
	t.Helper()
	return mustGit(t, r.repo, "show", "rendered:"+file) + "\n"
}

// topology returns a topology of the cluster g1 with gateways on nodes and exports, as
// namespace/name.
func topology(gateways []string, exports ...string) string {
	var out strings.Builder
	_, _ = fmt.Fprintf(&out, `apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: demo}
spec:
  clusters:
  - name: g1
    podCIDRs: [10.7.0.0/16]
    serviceCIDRs: [10.77.0.0/16]
    recipient: %s
    gateways:
`, recipient)
	for i, node := range gateways {
		_, _ = fmt.Fprintf(&out, "    - {name: on-%s, node: %s, endpoints: [203.0.113.%d]}\n", node, node, 10+i)
	}
	out.WriteString("  exports:\n")
	for _, e := range exports {
		namespace, name, _ := strings.Cut(e, "/")
		_, _ = fmt.Fprintf(&out, "  - {name: %s, namespace: %s, clusters: [g1], ports: [{name: http, port: 80}]}\n", name, namespace)
	}
	return out.String()
}

// get returns an object, or nil if it does not exist.
func (r *testCluster) get(t testing.TB, namespace, kind, name string) *unstructured.Unstructured {
	t.Helper()
	out, err := r.Try("-n", namespace, "get", kind, name, "--ignore-not-found", "-o", "json")
	if err != nil || out == "" {
		return nil
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(out), object); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return object
}

// list returns all objects of kinds, named as in kubectl, by namespace/kind/name.
func (r *testCluster) list(t testing.TB, kinds string, args ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	var list unstructured.UnstructuredList
	if err := json.Unmarshal([]byte(r.K(t, append([]string{"get", kinds, "-A", "-o", "json"}, args...)...)), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		o := &list.Items[i]
		out[strings.TrimPrefix(o.GetNamespace()+"/"+o.GetKind()+"/"+o.GetName(), "/")] = o
	}
	return out
}

// rendered are the kinds of the rendered objects of a cluster.
const rendered = "namespaces,customresourcedefinitions,serviceaccounts,clusterroles,clusterrolebindings,roles,rolebindings," +
	"validatingadmissionpolicies,validatingadmissionpolicybindings,configmaps,secrets,daemonsets"

// hawserLabel selects rendered objects.
const hawserLabel = "-lapp.kubernetes.io/part-of=hawser"

// awaitRemoved waits until Hawser's objects and all objects of moreKinds are deleted, except shared
// definitions and the objects of stays.
func (r *testCluster) awaitRemoved(t testing.TB, moreKinds string, stays ...string) {
	t.Helper()
	want := append([]string{
		"CustomResourceDefinition/clusterproperties.about.k8s.io",
		"CustomResourceDefinition/serviceexports.multicluster.x-k8s.io",
		"CustomResourceDefinition/serviceimports.multicluster.x-k8s.io",
	}, stays...)
	slices.Sort(want)
	eventually(t, "everything except definitions is deleted", func() (string, bool) {
		left := r.list(t, rendered, hawserLabel)
		maps.Copy(left, r.list(t, moreKinds+",serviceexports,pods,customresourcedefinitions"))
		maps.DeleteFunc(left, func(name string, _ *unstructured.Unstructured) bool {
			return strings.HasSuffix(name, ".toolkit.fluxcd.io") || strings.HasSuffix(name, ".argoproj.io")
		})
		names := slices.Sorted(maps.Keys(left))
		return fmt.Sprint(names), slices.Equal(names, want)
	})
}

// changed describes the objects that differ between two lists.
func changed(before, after map[string]*unstructured.Unstructured) []string {
	var out []string
	for name, o := range before {
		switch now := after[name]; {
		case now == nil:
			out = append(out, name+" is gone")
		case now.GetResourceVersion() != o.GetResourceVersion():
			a, _ := json.Marshal(o)
			b, _ := json.Marshal(now)
			out = append(out, fmt.Sprintf("%s changed from\n%s\nto\n%s", name, a, b))
		}
	}
	for name := range after {
		if before[name] == nil {
			out = append(out, name+" is new")
		}
	}
	slices.Sort(out)
	return out
}

// condition returns the status, reason and message of a condition.
func condition(o *unstructured.Unstructured, of string) (status, reason, message string) {
	if o == nil {
		return "", "", "there is no such object"
	}
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, entry := range list {
		if c, ok := entry.(map[string]any); ok && c["type"] == of {
			return fmt.Sprint(c["status"]), fmt.Sprint(c["reason"]), fmt.Sprint(c["message"])
		}
	}
	return "", "", "there is no such condition"
}

// eventually waits until a condition is true. Otherwise it fails with the last state.
func eventually(t testing.TB, what string, check func() (string, bool)) {
	t.Helper()
	var have string
	var ok bool
	for end := time.Now().Add(conditionTimeout); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		if have, ok = check(); ok {
			return
		}
	}
	t.Fatalf("not within %s: %s; have %s", conditionTimeout, what, have)
}

// applyAsAgent applies a manifest as an agent.
func (r *testCluster) applyAsAgent(t testing.TB, manifest string, args ...string) {
	t.Helper()
	cmd := exec.Command(r.Kubectl, append([]string{"--kubeconfig=" + r.Kubeconfig, "apply", "--server-side", "--field-manager=hawser", "-f", "-"}, args...)...)
	cmd.Stdin = strings.NewReader(manifest)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("write as an agent: %v\n%s", err, out.String())
	}
}

// writeExportStatus writes an agent's status of an export.
func (r *testCluster) writeExportStatus(t testing.TB, namespace, name string, valid bool, message string) {
	t.Helper()
	head := fmt.Sprintf("apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata:\n  name: %s\n  namespace: %s\n", name, namespace)
	// Only agents may write this annotation.
	r.applyAsAgent(t, head+"  annotations: {hawser.dev/addresses: 242.0.0.7}\n", "--as=system:serviceaccount:hawser-system:hawser-gateway")
	status := map[bool]string{true: "True", false: "False"}[valid]
	conditions := ""
	for _, c := range []string{"Valid", "Ready"} {
		conditions += fmt.Sprintf("  - {type: %s, status: %q, reason: Test, message: %q, lastTransitionTime: %q}\n", c, status, message, time.Now().UTC().Format(time.RFC3339))
	}
	r.applyAsAgent(t, head+"status:\n  conditions:\n"+conditions, "--subresource=status")
}
