package render_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/load"
)

var update = flag.Bool("update", false, "rewrite goldens")

// rootOf returns a constant root key.
func rootOf(t testing.TB) *keys.Root {
	t.Helper()
	root, err := keys.ReadRoot(bytes.Repeat([]byte{7}, keys.RootSize))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// input loads a topology and allocates its lock.
func input(t testing.TB, topology string) render.Input {
	t.Helper()
	top, _, list := load.Topology("clusterset.yaml", []byte(topology))
	noErrors(t, list)
	lock, list := allocate.Allocate(top, nil)
	noErrors(t, list)
	return render.Input{Topology: top, Lock: lock, Root: rootOf(t)}
}

func noErrors(t testing.TB, list diag.List) {
	t.Helper()
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
}

func mustRender(t testing.TB, in render.Input) render.Tree {
	t.Helper()
	tree, list := render.Render(in)
	noErrors(t, list)
	return tree
}

// TestGoldens renders testdata/*.txtar. Each contains a topology and every file of the tree, except
// the embedded files.
func TestGoldens(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d goldens: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			have := &txtar.Archive{Comment: archive.Comment, Files: archive.Files[:1:1]}
			tree := mustRender(t, input(t, string(archive.Files[0].Data)))
			for _, name := range tree.Paths() {
				if raw := readable(t, tree, name); raw != nil {
					have.Files = append(have.Files, txtar.File{Name: name, Data: raw})
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(have), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(txtar.Format(archive)), string(txtar.Format(have))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// readable returns a file in the form of the goldens. The fabric is unpacked, and a placeholder
// replaces the sealed keys. readable returns nil for files that are in no golden.
func readable(t *testing.T, tree render.Tree, name string) []byte {
	t.Helper()
	switch {
	case name == render.FabricText:
		f, err := render.FabricOf(tree)
		raw, err2 := json.MarshalIndent(f, "", " ")
		if diff := cmp.Diff(string(raw)+"\n", string(tree[name])); diff != "" || errors.Join(err, err2) != nil {
			t.Errorf("%s is not the fabric: %v (-want +got)\n%s", name, errors.Join(err, err2), diff)
		}
		return nil
	case name == render.MapPicture: // view/clustermap has goldens of the picture
		return nil
	case name == "README.md", name == "base/crds.yaml", name == "base/rbac.yaml", name == "base/namespace.yaml", name == "base/policy.yaml":
		return nil
	case name == "base/fabric.yaml":
		f, err := render.FabricOf(tree)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.MarshalIndent(f, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return append(raw, '\n')
	case strings.HasSuffix(name, "/keys.yaml"):
		head, _, ok := bytes.Cut(tree[name], []byte("  keys.age: LS0tLS1CRUdJTiBBR0UgRU5DUllQVEVEIEZJTEUtLS0tL"))
		if !ok {
			t.Errorf("%s holds no age file", name)
		}
		return append(head, "  keys.age: (an age file)\n"...)
	}
	return tree[name]
}

// fs writes a tree to a file system for kustomize.
func fs(t testing.TB, tree render.Tree) filesys.FileSystem {
	t.Helper()
	out := filesys.MakeFsInMemory()
	for name, raw := range tree {
		if err := out.WriteFile("/"+name, raw); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func build(t testing.TB, tree render.Tree, dir string) map[string]string {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs(t, tree), "/"+dir)
	if err != nil {
		t.Fatalf("kustomize build %s: %v", dir, err)
	}
	out := map[string]string{}
	for _, r := range built.Resources() {
		raw, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		key := r.GetKind() + " " + strings.TrimPrefix(r.GetNamespace()+"/"+r.GetName(), "/")
		if _, dup := out[key]; dup {
			t.Errorf("%s holds %s twice", dir, key)
		}
		out[key] = string(raw)
	}
	return out
}

// TestKustomize builds every cluster's directory, as Flux does.
func TestKustomize(t *testing.T) {
	t.Parallel()
	tree := mustRender(t, input(t, world(4, 6)))
	for i := range 4 {
		objects := build(t, tree, fmt.Sprintf("clusters/c%d", i))
		for _, want := range []string{"Namespace hawser-system", "CustomResourceDefinition serviceexports.multicluster.x-k8s.io",
			"CustomResourceDefinition serviceimports.multicluster.x-k8s.io", "CustomResourceDefinition clusterproperties.about.k8s.io",
			"CustomResourceDefinition hawsernodes.hawser.dev",
			"ServiceAccount hawser-system/hawser-agent", "ClusterRole hawser-agent", "ClusterRoleBinding hawser-agent",
			"ServiceAccount hawser-system/hawser-gateway", "ClusterRole hawser-gateway", "ClusterRoleBinding hawser-gateway",
			"DaemonSet hawser-system/hawser-agent", "DaemonSet hawser-system/hawser-gateway", "ConfigMap hawser-system/hawser-fabric",
			"ConfigMap hawser-system/hawser-identity", "Secret hawser-system/hawser-keys"} {
			if _, ok := objects[want]; !ok {
				t.Errorf("clusters/c%d lacks %s", i, want)
			}
		}
		exports := build(t, tree, fmt.Sprintf("clusters/c%d/exports", i))
		if want := bytes.Count(tree[fmt.Sprintf("clusters/c%d/exports/ns/exports.yaml", i)], []byte("kind: ServiceExport")); len(exports) != want || want == 0 {
			t.Errorf("clusters/c%d has %d ServiceExports, want %d", i, len(exports), want)
		}
	}
	if objects := build(t, tree, "argocd"); len(objects) != 1 {
		t.Errorf("argocd: %v", objects)
	}
}

// world returns a topology of n clusters with equal prefixes, and m exports.
func world(n, m int) string {
	var out strings.Builder
	out.WriteString("apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata: {name: demo}\n" +
		"spec:\n  globalnet: {clusterPrefix: 20}\n  clusters:\n")
	for i := range n {
		_, _ = fmt.Fprintf(&out, `  - name: c%d
    podCIDRs: [10.7.0.0/16]
    serviceCIDRs: [10.77.0.0/16]
    recipient: %s
    gateways:
    - {name: a, node: n1, endpoints: [203.%d.%d.1]}
    - {name: b, node: n2, endpoints: [203.%d.%d.2]}
`, i, recipient, i/250, i%250, i/250, i%250)
	}
	out.WriteString("  exports:\n")
	for i := range m {
		_, _ = fmt.Fprintf(&out, "  - {name: e%d, namespace: ns, clusters: [c%d, c%d], ports: [{port: 80}]}\n", i, i%n, (i+1)%n)
	}
	return out.String()
}

// recipient is an age recipient without a stored identity.
const recipient = "age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n"

// TestNothingMovesAByte checks that comments, the order of lists and a second rendering do not
// change the tree.
func TestNothingMovesAByte(t *testing.T) {
	t.Parallel()
	text := world(6, 9)
	first := input(t, text)
	want := mustRender(t, first)
	first.Previous = want
	if have := mustRender(t, first); !have.Equal(want) {
		t.Error("a second rendering differs")
	}
	commented := input(t, "# a comment\n"+strings.ReplaceAll(text, "\n    serviceCIDRs", "\n    # another\n    serviceCIDRs"))
	commented.Previous = want
	if have := mustRender(t, commented); !have.Equal(want) {
		t.Error("comments change bytes")
	}
	r := rand.New(rand.NewPCG(1, 2))
	s := &first.Topology.Spec
	for range 5 {
		r.Shuffle(len(s.Clusters), func(i, j int) { s.Clusters[i], s.Clusters[j] = s.Clusters[j], s.Clusters[i] })
		r.Shuffle(len(s.Exports), func(i, j int) { s.Exports[i], s.Exports[j] = s.Exports[j], s.Exports[i] })
		for i := range s.Clusters {
			slices.Reverse(s.Clusters[i].Gateways)
		}
		for i := range s.Exports {
			slices.Reverse(s.Exports[i].Clusters)
		}
		if have := mustRender(t, first); !have.Equal(want) {
			t.Fatal("the order of the file changes bytes")
		}
	}
}

// TestNewClusterChangesNoOther checks that a new cluster changes no file of another cluster.
func TestNewClusterChangesNoOther(t *testing.T) {
	t.Parallel()
	before := input(t, world(3, 3))
	have := mustRender(t, before)
	clusters, _, _ := strings.Cut(world(4, 0), "  exports:\n")
	_, exports, _ := strings.Cut(world(3, 3), "  exports:\n")
	top, _, list := load.Topology("clusterset.yaml", []byte(clusters+"  exports:\n"+exports))
	noErrors(t, list)
	lock, list := allocate.Allocate(top, before.Lock)
	noErrors(t, list)
	want := mustRender(t, render.Input{Topology: top, Lock: lock, Root: before.Root, Previous: have})
	for name, raw := range have {
		if strings.HasPrefix(name, "clusters/") && !bytes.Equal(want[name], raw) {
			t.Errorf("%s changed", name)
		}
	}
	if len(want["clusters/c3/keys.yaml"]) == 0 {
		t.Error("the new cluster has no keys")
	}
}

// TestSizeIsLinear checks that twice the clusters and exports have twice the bytes.
func TestSizeIsLinear(t *testing.T) {
	t.Parallel()
	size := func(n int) int {
		total := 0
		for _, raw := range mustRender(t, input(t, world(n, 4*n))) {
			total += len(raw)
		}
		return total
	}
	one, two := size(40), size(80)
	if two > 21*one/10 {
		t.Errorf("%d bytes for 40 clusters, %d for 80", one, two)
	}
}

// TestStaleLock checks that a missing allocation is an error with a hint.
func TestStaleLock(t *testing.T) {
	t.Parallel()
	in := input(t, world(2, 1))
	top, _, list := load.Topology("clusterset.yaml", []byte(world(3, 5)))
	noErrors(t, list)
	in.Topology = top
	_, list = render.Render(in)
	if !list.HasErrors() || list[0].Code != "lock-stale" || !strings.Contains(list[0].Hint, "hawser allocate") {
		t.Errorf("findings %v", list)
	}
}

func identity(t testing.TB) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}
