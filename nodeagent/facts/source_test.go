package facts

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/watch"
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
)

func names(s State) string {
	var out []string
	for _, node := range s.Facts.Nodes {
		out = append(out, node.Name)
	}
	return strings.Join(out, " ")
}

func TestBrokenFileKeepsTheLastGood(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "a.yaml", nodeA)
	put(t, dir, "b.yaml", ": [")
	put(t, dir, ".swp.yaml", ": [")
	put(t, dir, "notes.txt", ": [")
	s := Open(dir)
	if have := s.Current(); have.Loaded || have.Err == nil || names(have) != "a" {
		t.Fatalf("a file that was never good: %+v", have)
	}
	put(t, dir, "b.yaml", nodeB)
	if !s.Reload() {
		t.Error("Reload saw no change")
	}
	if have := s.Current(); !have.Loaded || have.Err != nil || names(have) != "a b" {
		t.Fatalf("mended: %+v", have)
	}
	if s.Reload() {
		t.Error("Reload saw a change where none was")
	}
	put(t, dir, "b.yaml", "kind: [")
	put(t, dir, "a.yaml", nodeA+"---\n"+strings.ReplaceAll(nodeA, "{name: a}", "{name: c}"))
	s.Reload()
	if have := s.Current(); !have.Loaded || have.Err == nil || names(have) != "a b c" || !strings.Contains(have.Err.Error(), "b.yaml:1") {
		t.Fatalf("broken again: %+v", have)
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
		t.Fatalf("folder gone: %+v", have)
	}
}

func TestMissingFolderIsNotLoaded(t *testing.T) {
	t.Parallel()
	if have := Open(filepath.Join(t.TempDir(), "none")).Current(); have.Loaded || have.Err == nil {
		t.Errorf("got %+v", have)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := Open(dir)
	put(t, dir, "a.yaml", nodeA) // between Open and Watch
	ctx, cancel := context.WithCancel(context.Background())
	changed, done := make(chan struct{}, 16), make(chan error, 1)
	go func() {
		watch.Folders(ctx, nil, s.Watched(func() { changed <- struct{}{} }))
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
