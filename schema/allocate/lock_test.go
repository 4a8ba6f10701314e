package allocate

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/load"
	"hawser.dev/hawser/schema/lockfile"
)

var update = flag.Bool("update", false, "rewrite goldens")

// TestLockGoldens runs testdata/lock/*.txtar. Each contains a topology, usually its lock, and the
// results of Check, Allocate and GC.
func TestLockGoldens(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/lock/*.txtar")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d goldens: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			have := runLockGolden(t, archive)
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

func runLockGolden(t *testing.T, archive *txtar.Archive) *txtar.Archive {
	t.Helper()
	out := &txtar.Archive{Comment: archive.Comment}
	in := map[string][]byte{}
	for _, f := range archive.Files {
		in[f.Name] = f.Data
		if !strings.HasPrefix(f.Name, "want/") {
			out.Files = append(out.Files, f)
		}
	}
	add := func(name, text string) {
		out.Files = append(out.Files, txtar.File{Name: "want/" + name, Data: []byte(text)})
	}
	top, _, list := load.Topology("clusterset.yaml", in["clusterset.yaml"])
	noErrors(t, list)
	lock, list := lockfile.Read("clusterset.lock.yaml", in["clusterset.lock.yaml"])
	if list.HasErrors() {
		add("read", describe(list))
		return out
	}
	add("check", describe(Check(top, lock)))
	next, list := Allocate(top, lock)
	add("allocate", describe(list))
	text := marshal(t, next)
	if text == string(in["clusterset.lock.yaml"]) {
		text = "unchanged\n"
	}
	add("lock", strings.TrimPrefix(text, lockfile.Header))
	if !list.HasErrors() {
		checkComplete(t, top, next)
		if gc := marshal(t, next.GC(top)); gc != marshal(t, next) {
			add("gc", strings.TrimPrefix(gc, lockfile.Header))
		}
	}
	return out
}

// checkComplete checks that the result of Allocate is complete, also after Marshal and Read.
func checkComplete(t *testing.T, top *schema.ClusterSet, l *lockfile.Lock) {
	t.Helper()
	again, list := lockfile.Read("again", []byte(marshal(t, l)))
	noErrors(t, list)
	if list := Check(top, again); list.HasErrors() {
		t.Errorf("not complete: %s", describe(list))
	}
}

func describe(list diag.List) string {
	var out strings.Builder
	for _, d := range list {
		_, _ = fmt.Fprintf(&out, "%s [%s]\n", d.Error(), d.Code)
		for _, r := range d.Related {
			_, _ = fmt.Fprintf(&out, "  also %s %s\n", r.Pos, r.Path)
		}
		if d.Hint != "" {
			_, _ = fmt.Fprintf(&out, "  hint: %s\n", d.Hint)
		}
	}
	return out.String()
}

// TestMergedBranches uses git to merge two branches that both allocated, in both directions. Check
// finds the conflicts, and Allocate resolves them to the same addresses.
func TestMergedBranches(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	small := func(clusters, exports []int) *schema.ClusterSet {
		top := newTopology(clusters, exports)
		setExporters(top)
		// The pool is too small for allocation by name, so Allocate uses the lowest free
		// address.
		top.Spec.Services.CIDR = netip.MustParsePrefix("243.0.0.0/26")
		return top
	}
	lockOf := func(base *lockfile.Lock, clusters, exports []int) *lockfile.Lock {
		top := small(clusters, exports)
		l, list := Allocate(top, base)
		noErrors(t, list)
		return l
	}
	base := lockOf(nil, []int{1, 2}, []int{1, 2})
	ours := lockOf(base, []int{1, 2, 3}, []int{1, 2, 5, 9})
	theirs := lockOf(base, []int{1, 2, 4}, []int{1, 2, 6, 8})
	top := small([]int{1, 2, 3, 4}, []int{1, 2, 5, 6, 8, 9})
	var results []string
	for _, sides := range [][2]*lockfile.Lock{{ours, theirs}, {theirs, ours}} {
		merged := union(t, marshal(t, base), marshal(t, sides[0]), marshal(t, sides[1]))
		lock, list := lockfile.Read("clusterset.lock.yaml", merged)
		noErrors(t, list)
		if list := Check(top, lock); !hasCode(list, "lock-conflict") {
			t.Fatalf("the merge was not caught: %s\n%s", describe(list), merged)
		} else if !list[0].Pos.IsValid() || !list[0].Related[0].Pos.IsValid() {
			t.Errorf("no places: %s", describe(list))
		}
		next, list := Allocate(top, lock)
		noErrors(t, list)
		checkComplete(t, top, next)
		wellFormed(t, top, next)
		for s, h := range base.Addrs {
			if diff := cmp.Diff(fmt.Sprint(h.Addrs), fmt.Sprint(next.Addrs[s].Addrs)); diff != "" {
				t.Errorf("%s of the common base moved (-want +got)\n%s", s.Path(), diff)
			}
		}
		results = append(results, marshal(t, next))
	}
	if diff := cmp.Diff(results[0], results[1]); diff != "" {
		t.Errorf("the direction of the merge matters\n%s", diff)
	}
}

func hasCode(list diag.List, code string) bool {
	for _, d := range list {
		if d.Code == code {
			return true
		}
	}
	return false
}

// union merges three versions, like git merge-file --union.
func union(t *testing.T, base, ours, theirs string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"base": base, "ours": ours, "theirs": theirs} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("git", "merge-file", "--union", "-p", "ours", "base", "theirs")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git merge-file: %v", err)
	}
	return out
}

func FuzzReadLock(f *testing.F) {
	top := newTopology([]int{0, 1, 7}, []int{1, 4})
	lock, _ := Allocate(top, nil)
	raw, err := lock.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte("allocated:\n  clusters[c1].blocks: [242.0.0.0/15, 242.0.0.0/16]\n  clusters[c1].egressIPs: [242.0.0.1-242.0.0.255]\n"))
	f.Add([]byte("allocated: {exports[a/b].vips: [::1-::ffff:ffff]}\n---\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		lock, list := lockfile.Read("lock", raw)
		if list.HasErrors() {
			return
		}
		next, list := Allocate(top, lock)
		if list.HasErrors() {
			return
		}
		again, list := lockfile.Read("lock", []byte(marshal(t, next)))
		if list.HasErrors() {
			t.Fatalf("cannot read the written lock: %s", describe(list))
		}
		if list := Check(top, again); list.HasErrors() {
			t.Fatalf("not complete: %s\n%s", describe(list), marshal(t, next))
		}
	})
}
