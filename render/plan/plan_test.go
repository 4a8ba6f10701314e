package plan_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/tools/txtar"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/render"
	"hawser.dev/hawser/render/keys"
	"hawser.dev/hawser/render/plan"
	"hawser.dev/hawser/schema/allocate"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/schema/lockfile"
)

var update = flag.Bool("update", false, "rewrite goldens")

func noErrors(t testing.TB, list diag.List) {
	t.Helper()
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
}

// stage is one state of a clusterset.
type stage struct {
	lock   *lockfile.Lock
	tree   render.Tree
	source *document.Source
}

// next renders a topology with the previous stage.
func next(t testing.TB, before stage, topology string) stage {
	t.Helper()
	root, err := keys.ReadRoot(bytes.Repeat([]byte{7}, keys.RootSize))
	if err != nil {
		t.Fatal(err)
	}
	top, source, list := load.Topology("clusterset.yaml", []byte(topology))
	noErrors(t, list)
	lock, list := allocate.Allocate(top, before.lock)
	noErrors(t, list)
	tree, list := render.Render(render.Input{Topology: top, Lock: lock, Root: root, Previous: before.tree})
	noErrors(t, list)
	return stage{lock, tree, source}
}

func compute(t testing.TB, want, have stage) *plan.Plan {
	t.Helper()
	p, err := plan.Compute(want.tree, have.tree)
	if err != nil {
		t.Fatal(err)
	}
	p.Locate(func(path string) string {
		pos := want.source.Pos(path)
		return fmt.Sprintf("%s:%d", pos.File, pos.Line)
	})
	return p
}

func text(t testing.TB, p *plan.Plan, color bool) string {
	t.Helper()
	var out bytes.Buffer
	if err := p.Print(&out, color); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestGoldens runs testdata/*.txtar. Each contains consecutive topologies, and the plan of each
// step under the name of its topology.
func TestGoldens(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d goldens: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			have := &txtar.Archive{Comment: archive.Comment}
			var at stage
			for _, f := range archive.Files {
				if !strings.HasSuffix(f.Name, ".yaml") {
					continue
				}
				before := at
				at = next(t, before, string(f.Data))
				have.Files = append(have.Files, f,
					txtar.File{Name: strings.TrimSuffix(f.Name, ".yaml") + ".plan", Data: []byte(text(t, compute(t, at, before), false))})
				if p := compute(t, at, at); !p.Empty() || text(t, p, true) != "No changes.\n" {
					t.Errorf("%s: a plan against itself has entries", f.Name)
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

// world returns a topology of n clusters and m exports.
func world(n, m int) string {
	var out strings.Builder
	out.WriteString("apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata: {name: demo}\n" +
		"spec:\n  globalnet: {clusterPrefix: 20}\n  clusters:\n")
	for i := range n {
		_, _ = fmt.Fprintf(&out, `  - name: c%d
    podCIDRs: [10.7.0.0/16]
    serviceCIDRs: [10.77.0.0/16]
    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n
    gateways:
    - {name: a, node: n1, endpoints: [203.%d.%d.1]}
`, i, i/250, i%250)
	}
	out.WriteString("  exports:\n")
	for i := range m {
		_, _ = fmt.Fprintf(&out, "  - {name: e%d, namespace: ns, clusters: [c%d, c%d], ports: [{port: 80}]}\n", i, i%n, (i+1)%n)
	}
	return out.String()
}

// TestJSON checks that the JSON form contains the same data as the text, and its version.
func TestJSON(t *testing.T) {
	t.Parallel()
	before := next(t, stage{}, world(2, 1))
	p := compute(t, next(t, before, strings.Replace(world(2, 1), "port: 80", "port: 81", 1)), before)
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"format_version":"1","clusterset":"demo","changes":[{"op":"~","kind":"export","key":"ns/e0",` +
		`"fields":[{"name":"ports","have":"80/TCP","want":"81/TCP"}],"path":"exports[ns/e0].ports[0].port","source":"clusterset.yaml:20",` +
		`"disruptive":"a port is gone or changes"}],"summary":{"add":0,"change":1,"destroy":0,"disruptive":1},` +
		`"access":{"added":[{"all":true,"to":[{"export":"ns/e0","ports":["81/TCP"],"in":["c0","c1"]}],"path":"exports[ns/e0].ports","source":"clusterset.yaml:20"}],` +
		`"removed":[{"all":true,"to":[{"export":"ns/e0","ports":["80/TCP"],"in":["c0","c1"]}],"path":"exports[ns/e0].ports","source":"clusterset.yaml:20","uncertain":true}]},"firewall":{"open":[],"close":[]},` +
		`"impact":{"breaks":[{"what":"connections to removed exports and ports: new ones fail","uncertain":true}],"pauses":[],"continues":[],"loads":[]}}`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var back plan.Plan
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*p, back, cmpopts.IgnoreUnexported(plan.Entry{})); diff != "" {
		t.Errorf("read back (-want +got)\n%s", diff)
	}
	empty, err := json.Marshal(compute(t, before, before))
	if err != nil || !strings.Contains(string(empty), `"changes":[]`) {
		t.Errorf("empty plan: %s, %v", empty, err)
	}
}

// TestEveryByteIsNamed checks that the plan is not empty if any file of the tree differs.
func TestEveryByteIsNamed(t *testing.T) {
	t.Parallel()
	have := next(t, stage{}, world(3, 3))
	for name := range have.tree {
		if name == "base/fabric.yaml" {
			continue // parsed, not compared by bytes
		}
		changed := stage{tree: maps.Clone(have.tree), source: have.source}
		changed.tree[name] = append(bytes.Clone(changed.tree[name]), '\n')
		p := compute(t, changed, have)
		if len(p.Entries) != 1 || p.Entries[0].Key != name || p.Entries[0].Kind != "file" {
			t.Errorf("%s differs, and the plan is %+v", name, p.Entries)
		}
		delete(changed.tree, name)
		if p := compute(t, changed, have); p.Empty() {
			t.Errorf("%s is gone, and the plan is empty", name)
		}
	}
	withLock := stage{tree: maps.Clone(have.tree), source: have.source}
	withLock.tree["clusterset.lock.yaml"] = []byte("x")
	if p := compute(t, withLock, have); !p.Empty() {
		t.Errorf("the lock next to the tree shows: %+v", p.Entries)
	}
}

// TestColor checks that only terminals receive coloured marks.
func TestColor(t *testing.T) {
	t.Parallel()
	before := next(t, stage{}, world(2, 1))
	p := compute(t, next(t, before, world(3, 0)), before)
	plain, colored := text(t, p, false), text(t, p, true)
	if strings.Contains(plain, "\x1b") || !strings.Contains(colored, "\x1b[32m+\x1b[0m") || !strings.Contains(colored, "\x1b[31m-\x1b[0m") {
		t.Errorf("%q\n%q", plain, colored)
	}
}

// TestBrokenTrees checks that the error about an unreadable tree contains its side.
func TestBrokenTrees(t *testing.T) {
	t.Parallel()
	good := next(t, stage{}, world(2, 1)).tree
	bad := maps.Clone(good)
	bad["base/fabric.yaml"] = []byte("binaryData: {fabric.json.gz: aGVsbG8=}")
	if _, err := plan.Compute(good, bad); err == nil || !strings.Contains(err.Error(), "read the published tree") {
		t.Errorf("error %v", err)
	}
	if _, err := plan.Compute(bad, good); err == nil || !strings.Contains(err.Error(), "read the new tree") {
		t.Errorf("error %v", err)
	}
}

// TestLinksStayFew checks that a new gateway adds one entry per link. A new clusterset has one
// entry per gateway.
func TestLinksStayFew(t *testing.T) {
	t.Parallel()
	links := func(p *plan.Plan) int {
		n := 0
		for _, e := range p.Entries {
			if e.Kind == "link" {
				n++
			}
		}
		return n
	}
	before := next(t, stage{}, world(60, 0))
	if n := links(compute(t, before, stage{source: before.source})); n != 60 {
		t.Errorf("%d link entries for 60 new gateways", n)
	}
	if n := links(compute(t, next(t, before, world(61, 0)), before)); n != 60 {
		t.Errorf("%d link entries for one gateway more", n)
	}
}

func BenchmarkCompute(b *testing.B) {
	before := next(b, stage{}, world(1000, 10000))
	after := next(b, before, strings.Replace(world(1000, 10000), "port: 80", "port: 81", 1))
	b.Run("one change", func(b *testing.B) {
		for b.Loop() {
			if p := compute(b, after, before); len(p.Entries) != 1 {
				b.Fatalf("%d entries", len(p.Entries))
			}
		}
	})
	more := next(b, before, world(1001, 10000))
	b.Run("one cluster more", func(b *testing.B) {
		for b.Loop() {
			if p := compute(b, more, before); len(p.Access.Added) == 0 {
				b.Fatal("the plan adds no access")
			}
		}
	})
	b.Run("all new", func(b *testing.B) {
		for b.Loop() {
			compute(b, after, stage{source: before.source})
		}
	})
}

// TestEgressStays checks that added or removed pod prefixes do not change the egress addresses of
// other pods. Addresses move only if the block of a remaining prefix changes.
func TestEgressStays(t *testing.T) {
	t.Parallel()
	mapped := strings.Replace(world(2, 0), "  globalnet: {clusterPrefix: 20}\n", "", 1)
	moves := func(from, to string) string {
		before := next(t, stage{}, from)
		var out []string
		for _, e := range compute(t, next(t, before, to), before).Disruptions() {
			out = append(out, e.Disruptive)
		}
		return strings.Join(out, "\n")
	}
	edit := func(old, with string) string { return strings.Replace(mapped, old, with, 1) }
	two := edit("podCIDRs: [10.7.0.0/16]", "podCIDRs: [10.7.0.0/16, 10.9.0.0/24]")
	for name, pair := range map[string][2]string{
		"another prefix":      {mapped, edit("podCIDRs: [10.7.0.0/16]", "podCIDRs: [10.8.0.0/16]")},
		"one more":            {mapped, two},
		"one less":            {two, mapped},
		"another serviceCIDR": {mapped, edit("serviceCIDRs: [10.77.0.0/16]", "serviceCIDRs: [10.78.0.0/16]")},
	} {
		if said := moves(pair[0], pair[1]); strings.Contains(said, "egress") {
			t.Errorf("%s: %s", name, said)
		}
	}
	if said := moves(mapped, edit("podCIDRs: [10.7.0.0/16]", "globalCIDR: 242.64.0.0/15\n    podCIDRs: [10.7.0.0/16]")); !strings.Contains(said,
		"egress addresses of pods in 10.7.0.0/16 of c0 move") {
		t.Errorf("another block: %q", said)
	}
}

// TestManyEdits checks that the cost of an edit does not grow with the number of edits.
func TestManyEdits(t *testing.T) {
	t.Parallel()
	before := next(t, stage{}, world(200, 3000))
	p := compute(t, next(t, before, strings.ReplaceAll(world(200, 3000), "port: 80", "port: 81")), before)
	if len(p.Entries) != 3000 {
		t.Fatalf("%d entries", len(p.Entries))
	}
	for i, e := range p.Entries {
		if want := fmt.Sprintf("exports[%s].ports[0].port", e.Key); e.Path != want {
			t.Fatalf("%d: %s cites %s", i, e.Key, e.Path)
		}
	}
}

// TestForgedTopology checks a forged topology on the publish branch, which anyone with push access
// can write. It must not break the plan, and no control sequence of it reaches a terminal.
func TestForgedTopology(t *testing.T) {
	t.Parallel()
	before := next(t, stage{}, world(2, 1))
	after := next(t, before, strings.Replace(world(2, 1), "port: 80", "port: 81", 1))
	for name, forged := range map[string]string{
		"no JSON":      "{",
		"another type": `[[[[]]], {"spec": 3}]`,
		"another list": `{"spec": {"clusters": [{"name": {}}, 7, null], "exports": "x"}}`,
		"escapes": `{"metadata": {"name": "\u001b[2J"}, "spec": {"\u001b[2J": "\u001b[2J", "domain": "a\nb", "clusters": [{"name": "\u001b[2J]["}],` +
			` "extraDomains": ["\u001b[2J"]}}`,
		"brackets": `{"spec": {"clusters": [{"name": "]["}, {"name": "["}], "exports": [{"name": "[*]"}], "a[": {"]": 1}}}`,
	} {
		have := stage{tree: maps.Clone(before.tree), source: before.source}
		have.tree[render.TopologyText] = []byte(forged)
		p := compute(t, after, have)
		if out := text(t, p, false); !strings.Contains(out, "ports: 80/TCP -> 81/TCP") || strings.Contains(out, "\x1b") {
			t.Errorf("%s:\n%q", name, out)
		}
	}
}

// TestManyPairs checks that the plan counts pairs of clusters if they are too many to list. It also
// checks equal numbers of added and removed pairs.
func TestManyPairs(t *testing.T) {
	t.Parallel()
	hub := func(name string) string {
		return strings.Replace(world(40, 0), "  clusters:", "  connectivity: {mode: hub, hubs: ["+name+"]}\n  clusters:", 1)
	}
	mesh := next(t, stage{}, world(40, 0))
	p := compute(t, next(t, mesh, hub("c0")), mesh)
	if out := text(t, p, false); p.Summary.Destroy != 39*38/2 || !strings.Contains(out, "pair 741 pairs of clusters that end") {
		t.Errorf("%+v\n%s", p.Summary, out)
	}
	chain := func(step int) string {
		var links []string
		for i := range 67 {
			links = append(links, fmt.Sprintf("[c%d, c%d]", i*step%67, (i+1)*step%67))
		}
		return strings.Replace(world(67, 0), "  clusters:", "  connectivity: {mode: links, links: ["+strings.Join(links, ", ")+"]}\n  clusters:", 1)
	}
	ring := next(t, stage{}, chain(1))
	p = compute(t, next(t, ring, chain(2)), ring)
	if p.Summary.Add != 67 || p.Summary.Destroy != 67 {
		t.Errorf("67 pairs come and 67 go: %+v\n%s", p.Summary, text(t, p, false))
	}
}
