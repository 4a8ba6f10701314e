package facts

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/internal/dirwatch"
)

func put(t *testing.T, dir, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	nodeA = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"
	nodeB = "apiVersion: v1\nkind: Node\nmetadata: {name: b}\n"
	nodeC = "---\napiVersion: v1\nkind: Node\nmetadata: {name: c}\n"
)

func names(s State) string {
	var out []string
	for _, node := range s.Facts.Nodes {
		out = append(out, node.Name)
	}
	return strings.Join(out, " ")
}

func TestBrokenFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "a.yaml", nodeA)
	put(t, dir, "b.yaml", ": [")
	put(t, dir, ".swp.yaml", ": [")
	put(t, dir, "notes.txt", ": [")
	s := Open(dir, "")
	if have := s.Current(); have.Loaded || have.Err == nil || names(have) != "a" {
		t.Fatalf("a new broken file: %+v", have)
	}
	put(t, dir, "b.yaml", nodeB)
	if !s.Reload() {
		t.Error("Reload saw no change")
	}
	if have := s.Current(); !have.Loaded || have.Err != nil || names(have) != "a b" {
		t.Fatalf("fixed: %+v", have)
	}
	if s.Reload() {
		t.Error("Reload reports a change of unchanged files")
	}
	put(t, dir, "b.yaml", "kind: [")
	put(t, dir, "a.yaml", nodeA+"---\n"+strings.ReplaceAll(nodeA, "{name: a}", "{name: c}"))
	s.Reload()
	if have := s.Current(); !have.Loaded || have.Err == nil || names(have) != "a b c" || !strings.Contains(have.Err.Error(), "b.yaml:1") {
		t.Fatalf("broken a second time: %+v", have)
	}
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	s.Reload()
	if have := s.Current(); have.Err != nil || names(have) != "a c" {
		t.Fatalf("removed: %+v", have)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	s.Reload()
	if have := s.Current(); have.Err == nil || !have.Loaded || names(have) != "a c" {
		t.Fatalf("directory gone: %+v", have)
	}
}

func TestMissingDirIsNotLoaded(t *testing.T) {
	t.Parallel()
	if have := Open(filepath.Join(t.TempDir(), "none"), "").Current(); have.Loaded || have.Err == nil {
		t.Errorf("got %+v", have)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := Open(dir, "")
	put(t, dir, "a.yaml", nodeA) // between Open and Watch
	ctx, cancel := context.WithCancel(context.Background())
	changed, done := make(chan struct{}, 16), make(chan error, 1)
	go func() {
		dirwatch.Watch(ctx, nil, s.WatchDir(func() { changed <- struct{}{} })...)
		done <- nil
	}()
	await := func(want string) {
		t.Helper()
		deadline := time.After(60 * time.Second)
		for names(s.Current()) != want {
			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("facts are %q, want %q", names(s.Current()), want)
			}
		}
	}
	await("a")
	put(t, dir, "b.yaml", nodeB)
	await("a b")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestReports checks that a node is protected while its HawserNode reports the boot of its Node. With
// an empty directory no node is protected; without a directory all are.
func TestReports(t *testing.T) {
	t.Parallel()
	dir, reports := t.TempDir(), t.TempDir()
	boot := func(name, id string) string {
		return "---\napiVersion: v1\nkind: Node\nmetadata: {name: " + name + "}\nstatus: {nodeInfo: {bootID: " + id + "}}\n"
	}
	report := func(name, id string) string {
		return `{"apiVersion":"hawser.dev/v1alpha1","kind":"HawserNode","metadata":{"name":"` + name + `"},"status":{"role":"worker","rulesBootID":"` + id + `"}}`
	}
	put(t, dir, "nodes.yaml", boot("a", "a1")+boot("b", "b1")+nodeC)
	s, all := Open(dir, reports), Open(dir, "")
	check := func(what, want string) {
		t.Helper()
		s.Reload()
		var have []string
		for _, n := range s.Current().Facts.Nodes {
			if n.Unprotected {
				have = append(have, n.Name)
			}
		}
		if strings.Join(have, " ") != want {
			t.Errorf("%s: unprotected %q, want %q", what, have, want)
		}
	}
	check("no reports", "a b c")
	put(t, reports, "a.json", report("a", "a1"))
	put(t, reports, "b.json", report("b", "b0"))
	put(t, reports, "c.json", report("c", "c1"))
	check("b reports an older boot; the Node of c has no boot ID", "b")
	put(t, reports, "b.json", report("b", "b1"))
	check("b reports its boot", "")
	put(t, dir, "nodes.yaml", boot("a", "a2")+boot("b", "b1")+nodeC)
	check("a booted again", "a")
	put(t, reports, "b.json", "{")
	check("a file that is broken keeps its last content", "a")
	put(t, reports, "a.json", report("a", ""))
	check("a removed its rules", "a")
	for _, n := range all.Current().Facts.Nodes {
		if n.Unprotected {
			t.Errorf("%s is unprotected although no node reports", n.Name)
		}
	}
	put(t, dir, "reports.yaml", "apiVersion: v1\nkind: List\nitems: ["+report("b", "b1")+"]\n")
	all.Reload()
	if nodes := all.Current().Facts.Nodes; !nodes[0].Unprotected || nodes[1].Unprotected {
		t.Errorf("with HawserNodes among the facts: %+v", nodes)
	}
}
