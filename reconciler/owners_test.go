//go:build !race

package reconciler

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hawser.dev/hawser/render"
	"hawser.dev/hawser/schema/load"
)

// people are the signers of a clusterset. ann owns everything, bob owns the namespace shop, carol
// owns the cluster g1, and eve owns nothing.
type people struct{ ann, bob, carol, eve person }

func newPeople(t *testing.T) people {
	t.Helper()
	return people{newPerson(t, "ann"), newPerson(t, "bob"), newPerson(t, "carol"), newPerson(t, "eve")}
}

// file returns the allowed_signers file of p.
func (p people) file() string {
	var out strings.Builder
	for _, who := range []person{p.ann, p.bob, p.carol, p.eve} {
		out.WriteString(who.line())
	}
	return out.String()
}

// ownedTopology is a topology with owners.
const ownedTopology = `apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata: {name: demo}
spec:
  trust:
    commits: allowed_signers
    owners: [ann@example.org]
    namespaces: [{names: [shop], owners: [bob@example.org]}]
  clusters:
  - name: g1
    owners: [carol@example.org]
    podCIDRs: [10.1.0.0/16]
    serviceCIDRs: [10.101.0.0/16]
    recipient: age1n4s70tp2m67uhryhg8ax4fzrt32nvcy5undwsrsvmcu2t0p7tvyqtjxy2n
    gateways: [{name: a, node: n1, endpoints: [192.0.2.1]}]
  - name: g2
    podCIDRs: [10.2.0.0/16]
    serviceCIDRs: [10.102.0.0/16]
    recipient: age1lr68929mj5ruklx8rh9mlp6z4cjtesjcqcdpfm6wwmhm8g20ndcqv40250
    gateways: [{name: a, node: n1, endpoints: [192.0.2.2]}]
  exports:
  - {name: web, namespace: shop, clusters: [g1], ports: [{port: 80}]}
  - {name: db, namespace: bank, clusters: [g2], allow: {clusters: [g2]}, ports: [{port: 5432}]}
`

// newOwnedTestEnv publishes ownedTopology and its lock.
func newOwnedTestEnv(t *testing.T, p people) *testEnv {
	t.Helper()
	g := newTestEnv(t, true)
	g.commit("allowed_signers", p.file())
	g.commit(TopologyFile, ownedTopology)
	g.mustPass()
	g.pull()
	return g
}

// commitEdit commits an edit of files and signs the commit as author. Each value has the old and
// the new text. Without an old text the new text is the content of a new file.
func (g *testEnv) commitEdit(author person, files map[string][2]string) string {
	g.t.Helper()
	for name, edit := range files {
		have, err := os.ReadFile(filepath.Join(g.work, name))
		if err == nil && edit[0] != "" && !strings.Contains(string(have), edit[0]) {
			g.t.Fatalf("%s has no %q", name, edit[0])
		}
		text := edit[1]
		if edit[0] != "" {
			text = strings.Replace(string(have), edit[0], edit[1], 1)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(g.work, name)), 0o755); err != nil {
			g.t.Fatal(err)
		}
		g.write(name, text)
	}
	git(g.t, g.work, "commit", "-q", "-m", "a change")
	return g.sign(author)
}

func topologyEdit(old, now string) map[string][2]string {
	return map[string][2]string{TopologyFile: {old, now}}
}

// newExport returns an edit that adds an export to ownedTopology.
func newExport(namespace string) map[string][2]string {
	return topologyEdit("  exports:\n", "  exports:\n  - {name: api, namespace: "+namespace+", clusters: [g1, g2], ports: [{port: 81}]}\n")
}

// TestOwners checks that a commit may change only what its signer owns.
func TestOwners(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	tests := []struct {
		name  string
		who   person
		files map[string][2]string
		says  string // in the error; empty = the commit is published
	}{
		{"an export of the own namespace", p.bob, newExport("shop"), ""},
		{"a gateway of the own cluster", p.carol, topologyEdit("endpoints: [192.0.2.1]", "endpoints: [192.0.2.7]"), ""},
		{"a patch of the own cluster", p.carol, map[string][2]string{"patches/clusters/g1/p.yaml": {"", patchText}}, ""},
		{"a file without an owner", p.eve, map[string][2]string{"README": {"", "text"}}, ""},
		{"nothing but text", p.eve, topologyEdit("  clusters:\n", "  # The clusters, in no order:\n  clusters:\n"), ""},
		{"everything", p.ann, topologyEdit("metadata", "# all\nmetadata"), ""},
		{"prefixes, by an owner of everything", p.ann, topologyEdit("[10.1.0.0/16]", "[10.1.0.0/16, 10.3.0.0/16]"), ""},

		{"an export of another namespace", p.bob, newExport("bank"), "adds export bank/api, which its signer does not own"},
		{"nothing's owner exports", p.eve, newExport("shop"), "signed by eve@example.org, adds export shop/api"},
		{"another's allow list", p.bob, topologyEdit("allow: {clusters: [g2]}, ", ""), "removes export bank/db: allow"},
		{"another namespace under the old name", p.bob, topologyEdit("namespace: bank", "namespace: shop"), "removes export bank/db"},
		{"another's gateway", p.bob, topologyEdit("endpoints: [192.0.2.1]", "endpoints: [192.0.2.7]"), "changes cluster g1: gateways[a].endpoints"},
		{"another cluster's gateway", p.carol, topologyEdit("endpoints: [192.0.2.2]", "endpoints: [192.0.2.7]"), "changes cluster g2: gateways[a].endpoints"},
		{"the endpoint of another's gateway", p.carol, topologyEdit("endpoints: [192.0.2.1]", "endpoints: ['192.0.2.2:6000']"), "changes cluster g1: endpoint 192.0.2.2, which another cluster has"},
		{"another's prefixes", p.carol, topologyEdit("[10.1.0.0/16]", "[10.1.0.0/16, 10.2.0.0/16]"), "changes cluster g1: podCIDRs"},
		{"no encryption", p.carol, topologyEdit("    recipient: age1n4", "    tunnel: {driver: vxlan}\n    recipient: age1n4"), "changes cluster g1: tunnel.driver"},
		{"another cluster name", p.carol, topologyEdit("- name: g1", "- name: g3"), "removes cluster g1"},
		{"a cluster less", p.carol, topologyEdit("  - name: g2\n    podCIDRs", "  - name: g1\n    podCIDRs"), "the name g1 is taken by another cluster"},
		{"owners of everything", p.bob, topologyEdit("owners: [ann@example.org]", "owners: [ann@example.org, bob@example.org]"), "changes trust.owners"},
		{"owners of the own cluster", p.carol, topologyEdit("owners: [carol@example.org]", "owners: [carol@example.org, eve@example.org]"), "changes cluster g1: owners"},
		{"owners of namespaces, and their use", p.bob, topologyEdit("names: [shop]", "names: [shop, bank]"), "changes trust.namespaces"},
		{"no more signatures", p.bob, topologyEdit("    commits: allowed_signers\n", ""), "changes trust.commits"},
		{"dynamic exports for all", p.bob, topologyEdit("  exports:\n", "  dynamicExports: {namespaces: ['*']}\n  exports:\n"), "adds dynamicExports"},
		{"a principal more", p.eve, map[string][2]string{"allowed_signers": {"eve@example.org", "eve@example.org,ann@example.org"}}, "changes allowed_signers"},
		{"patches of all clusters", p.carol, map[string][2]string{"patches/base/p.yaml": {"", patchText}}, "changes patches/base/p.yaml"},
		{"patches of another cluster", p.carol, map[string][2]string{"patches/clusters/g2/p.yaml": {"", patchText}}, "changes patches/clusters/g2/p.yaml"},
		{"patches of a cluster that comes later", p.carol, map[string][2]string{"patches/clusters/g3/p.yaml": {"", patchText}}, "changes patches/clusters/g3/p.yaml"},
		{"another address", p.bob, map[string][2]string{LockFile: {"exports[shop/web].vips: [243.0.0.145]", "exports[shop/web].vips: [243.0.52.14]"}}, "changes " + LockFile},
		{"no lock", p.bob, map[string][2]string{LockFile: {"", "\n"}}, "changes " + LockFile},
		{"a key twice", p.bob, topologyEdit("  exports:\n", "  exports: []\n  exports:\n"), "the key occurs twice"},
		{"an anchor", p.bob, topologyEdit("ports: [{port: 80}]", "ports: &p [{port: 80}]"), "anchors and aliases are not supported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newOwnedTestEnv(t, p)
			before := g.published()
			g.commitEdit(tt.who, tt.files)
			out, failure := g.Once(t.Context())
			if tt.says == "" {
				if failure != nil {
					t.Fatalf("%s: %v", failure.Reason, failure)
				}
				if out.Source.Commit == "" || g.published() == before {
					t.Error("nothing was published")
				}
				return
			}
			if failure == nil || !strings.Contains(failure.Message, tt.says) {
				t.Fatalf("got %v, want %q", failure, tt.says)
			}
			if g.published() != before {
				t.Error("something was published")
			}
		})
	}
}

const patchText = "apiVersion: v1\nkind: Namespace\nmetadata: {name: hawser-system, labels: {a: b}}\n"

// TestOwnersSay checks that a refusal contains item, line, signer and the next step of the owners.
func TestOwnersSay(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	g := newOwnedTestEnv(t, p)
	commit := g.commitEdit(p.eve, topologyEdit("port: 80", "port: 8080"))
	failure := g.mustFail(ReasonUntrusted)
	want := "clusterset.yaml:22:57: error: exports[shop/web].ports: commit " + commit[:12] +
		", signed by eve@example.org, changes export shop/web: ports, which its signer does not own"
	if failure.Message != want {
		t.Errorf("got  %s\nwant %s", failure.Message, want)
	}
	parent := git(t, g.work, "rev-parse", commit+"^")
	if hint := failure.Diagnostics[0].Hint; hint != "its owners are ann@example.org and bob@example.org: reset the branch to commit "+parent[:12]+
		" and have one of them merge the change (git merge --no-ff -S)" {
		t.Errorf("hint %q", hint)
	}
	if !failure.Refused() || failure.Files()["clusterset.yaml"] == nil {
		t.Error("it is no finding in a file")
	}
	// A removed item has its position in an older version, as COMMIT:PATH.
	git(t, g.work, "reset", "-q", "--hard", "HEAD~1")
	g.commitEdit(p.eve, topologyEdit("  - {name: web, namespace: shop, clusters: [g1], ports: [{port: 80}]}\n", ""))
	failure = g.mustFail(ReasonUntrusted)
	pos := failure.Diagnostics[0].Pos
	if lines := strings.Split(git(t, g.work, "show", pos.File), "\n"); !strings.Contains(lines[pos.Line-1], "name: web") {
		t.Errorf("%s is %q", pos, lines[pos.Line-1])
	}
}

// TestOwnersInDir checks the owners of a topology in a directory.
func TestOwnersInDir(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	g := newTestEnv(t, true, func(c *Config) { c.Path = "net" })
	g.commit("net/allowed_signers", p.file())
	g.commit("net/"+TopologyFile, ownedTopology)
	g.mustPass()
	g.pull()
	at := func(files map[string][2]string) map[string][2]string {
		out := map[string][2]string{}
		for name, edit := range files {
			out["net/"+name] = edit
		}
		return out
	}
	g.commitEdit(p.eve, map[string][2]string{"patches/base/p.yaml": {"", patchText}, "allowed_signers": {"", p.eve.line()}}) // the reconciler does not read these files
	g.mustPass()
	g.commitEdit(p.carol, at(map[string][2]string{"patches/clusters/g1/p.yaml": {"", patchText}}))
	g.mustPass()
	g.commitEdit(p.bob, at(newExport("shop")))
	g.mustPass()
	g.pull()
	first := git(t, g.work, "rev-parse", "HEAD")
	for name, edit := range map[string][2]string{
		"allowed_signers": {"eve@", "ann@"}, "patches/base/p.yaml": {"", patchText}, "patches/clusters/g2/p.yaml": {"", patchText},
		LockFile: {"exports[shop/web].vips: [243.0.0.145]", "exports[shop/web].vips: [243.0.0.9]"},
	} {
		git(t, g.work, "reset", "-q", "--hard", first)
		g.commitEdit(p.carol, at(map[string][2]string{name: edit}))
		g.mustDistrust("changes net/" + name)
	}
	git(t, g.work, "reset", "-q", "--hard", first)
	bad := g.commitEdit(p.eve, at(topologyEdit("port: 80}", "port: 8080}")))
	g.mustDistrust("changes export shop/web: ports")
	git(t, g.work, "reset", "-q", "--hard", first)
	git(t, g.work, "merge", "-q", "--no-ff", "-m", "merge", bad)
	g.sign(p.ann)
	g.mustPass()
}

// TestOwnersOfEachCommit checks that each commit along first parents is checked separately.
func TestOwnersOfEachCommit(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	g := newOwnedTestEnv(t, p)
	first := git(t, g.work, "rev-parse", "HEAD")
	back := func() {
		t.Helper()
		git(t, g.work, "checkout", "-q", "main")
		git(t, g.work, "reset", "-q", "--hard", first)
		g.push("-f", "main")
	}

	// Neither a later commit of an owner nor a revert approves an earlier commit.
	g.commitEdit(p.bob, newExport("bank"))
	g.commitEdit(p.ann, map[string][2]string{"README": {"", "text"}})
	g.mustDistrust("adds export bank/api")
	g.commitEdit(p.bob, topologyEdit("  - {name: api, namespace: bank, clusters: [g1, g2], ports: [{port: 81}]}\n", ""))
	g.mustDistrust("adds export bank/api")

	// The signer of a merge is responsible for the merged commits.
	back()
	git(t, g.work, "checkout", "-q", "-b", "topic")
	g.commitEdit(p.carol, topologyEdit("endpoints: [192.0.2.1]", "endpoints: [192.0.2.7]"))
	git(t, g.work, "checkout", "-q", "main")
	g.commitEdit(p.bob, map[string][2]string{"README": {"", "text"}})
	git(t, g.work, "merge", "-q", "--no-ff", "-m", "merge", "topic")
	g.sign(p.bob)
	g.mustDistrust("signed by bob@example.org, changes cluster g1: gateways[a].endpoints")
	git(t, g.work, "reset", "-q", "--hard", "HEAD~1")
	git(t, g.work, "merge", "-q", "--no-ff", "-m", "merge", "topic")
	g.sign(p.carol)
	g.mustPass()

	// A change can follow a commit with an unreadable topology.
	g.pull()
	first = git(t, g.work, "rev-parse", "HEAD")
	g.commitEdit(p.bob, topologyEdit("kind: ClusterSet", "kind: [ClusterSet"))
	g.mustFail(ReasonInvalid)
	g.commitEdit(p.bob, map[string][2]string{TopologyFile: {"kind: [ClusterSet", "kind: ClusterSet"}, "README": {"", "more"}})
	g.mustPass() // the same signer can repair the topology
	first = git(t, g.work, "rev-parse", "HEAD")
	g.commitEdit(p.bob, topologyEdit("kind: ClusterSet", "kind: [ClusterSet"))
	git(t, g.work, "rm", "-q", "--cached", TopologyFile)
	git(t, g.work, "commit", "-q", "-m", "no topology")
	g.sign(p.bob)
	g.mustFail(ReasonNoFile)
	text := strings.Replace(ownedTopology, "namespace: bank", "namespace: shop", 1)
	g.commitEdit(p.bob, map[string][2]string{TopologyFile: {"", strings.Replace(text, "192.0.2.1]", "192.0.2.7]", 1)}})
	g.mustDistrust("removes export bank/db")

	// The first commit makes its signer an owner. The second one uses that.
	back()
	g.commitEdit(p.bob, topologyEdit("names: [shop]", "names: [shop, bank]"))
	g.commitEdit(p.bob, newExport("bank"))
	g.mustDistrust("changes trust.namespaces")
	// An owner of everything can add owners, which apply from the next commit on.
	back()
	g.commitEdit(p.ann, topologyEdit("names: [shop]", "names: [shop, bank]"))
	g.commitEdit(p.bob, newExport("bank"))
	g.mustPass()
}

// TestOwnersOfLocks checks that the owner of a change can commit the addresses that hawser allocate
// assigns to that change, and no others.
func TestOwnersOfLocks(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	g := newOwnedTestEnv(t, p)
	committed, published := g.file("main", LockFile), g.file(DefaultPublishBranch, LockFile)
	set, _, _ := load.Topology(TopologyFile, []byte(strings.Replace(ownedTopology, newExport("shop")[TopologyFile][0], newExport("shop")[TopologyFile][1], 1)))
	allocated, list := Allocate(AllocateInput{Set: set, Committed: []byte(committed), Published: []byte(published)})
	if list.HasErrors() {
		t.Fatal(list)
	}
	raw, err := allocated.Lock.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	taken := strings.Replace(string(raw), "exports[shop/api].vips: [243.0.108.208]", "exports[shop/api].vips: [243.0.0.145]", 1)
	if taken == string(raw) {
		t.Fatalf("the lock is not as expected:\n%s", raw)
	}
	first := git(t, g.work, "rev-parse", "HEAD")
	for _, lock := range []string{taken, string(raw)} {
		git(t, g.work, "reset", "-q", "--hard", first)
		files := newExport("shop")
		files[LockFile] = [2]string{"", lock}
		if g.commitEdit(p.bob, files); lock == taken {
			g.mustDistrust("changes " + LockFile)
		}
	}
	g.mustPass()
	g.commitEdit(p.bob, map[string][2]string{LockFile: {"", taken}})
	g.mustDistrust("changes " + LockFile)
}

// TestOwnersAreKnown compares owners with the allowed_signers file. An unknown owner is a warning.
// It is an error if no key owns everything, or if a principal is a pattern.
func TestOwnersAreKnown(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	g := newTestEnv(t, true)
	g.commit("allowed_signers", p.file())
	g.commit(TopologyFile, strings.Replace(ownedTopology, "[bob@example.org]", "[bob@example.org, bobby, \"*@example.org\"]", 1))
	if out := g.mustPass(); len(out.Warnings) != 2 || out.Warnings[1].Error() !=
		"clusterset.yaml:8:60: warning: trust.namespaces[0].owners[1]: bobby is no principal of allowed_signers" {
		t.Errorf("warnings %v", out.Warnings)
	}
	for name, tt := range map[string]struct{ signers, topology, says string }{
		"no owner of everything": {p.file(), strings.Replace(ownedTopology, "[ann@", "[anna@", 1),
			"clusterset.yaml:7:13: error: trust.owners: no key of allowed_signers owns everything"},
		"a principal is a pattern": {strings.Replace(p.file(), "eve@", "*@", 1), ownedTopology,
			`allowed_signers:4:1: error: the principal "*@example.org" is a pattern`},
	} {
		g := newTestEnv(t, true)
		g.commit("allowed_signers", tt.signers)
		g.commit(TopologyFile, tt.topology)
		if failure := g.mustFail(ReasonInvalid); !strings.Contains(failure.Message, tt.says) {
			t.Errorf("%s: got %v", name, failure)
		}
	}
}

// mktree stores a directory that git's commands would not write, and returns its hash.
func (g *testEnv) mktree(entries ...string) string {
	g.t.Helper()
	cmd := exec.Command("git", "-C", g.work, "mktree")
	cmd.Stdin = strings.NewReader(strings.Join(entries, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		g.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestOwnersOfPaths checks directories that git stores but does not write. An entry named .. leads
// out of an owned directory, and a duplicate name has two contents.
func TestOwnersOfPaths(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	for name, tt := range map[string]struct {
		file func(g *testEnv, blob string) string // tree of patches/clusters/g1
		says string
	}{
		"out of the directory": {func(g *testEnv, blob string) string {
			up := "040000 tree " + g.mktree("100644 blob "+blob+"\tagent.yaml") + "\tbase"
			for range 4 {
				up = "040000 tree " + g.mktree(up) + "\t.."
			}
			return g.mktree(up)
		}, `invalid path ".."`},
		"twice": {func(g *testEnv, blob string) string {
			other := git(g.t, g.work, "hash-object", "-w", TopologyFile)
			return g.mktree("100644 blob "+blob+"\tp.yaml", "100644 blob "+other+"\tp.yaml")
		}, `has the name "p.yaml" twice`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newOwnedTestEnv(t, p)
			before := g.published()
			g.write("patch.yaml", patchText)
			blob := git(t, g.work, "hash-object", "-w", "patch.yaml")
			patches := g.mktree("040000 tree " + g.mktree("040000 tree "+tt.file(g, blob)+"\tg1") + "\tclusters")
			top := g.mktree(git(t, g.work, "ls-tree", "HEAD"), "040000 tree "+patches+"\t"+render.PatchesDir)
			commit := git(t, g.work, "commit-tree", "-p", "HEAD", "-m", "a change", top)
			git(t, g.work, "update-ref", "refs/heads/main", commit)
			g.signBare(p.carol)
			_, failure := g.Once(t.Context())
			if failure == nil || !strings.Contains(failure.Message, tt.says) {
				t.Errorf("got %v, want %q", failure, tt.says)
			}
			if after := g.published(); after != before {
				t.Errorf("published:\n%s", git(t, g.repo, "diff", "--stat", before, after))
			}
		})
	}
}
