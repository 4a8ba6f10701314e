package statefile_test

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hawser.dev/hawser/internal/statefile"
)

// TestFile checks that the next start loads the saved value, that an empty map leaves no file,
// and that an equal value is not written.
func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "paths.json")
	f := statefile.New[map[string]int](dir, "paths.json")
	if have, err := f.Load(); err != nil || have != nil {
		t.Fatalf("before the first save: %v, %v", have, err)
	}
	want := map[string]int{"g2": 1}
	if err := f.Save(want); err != nil {
		t.Fatal(err)
	}
	again := statefile.New[map[string]int](dir, "paths.json")
	if have, err := again.Load(); err != nil || !maps.Equal(have, want) {
		t.Errorf("at the next start: %v, %v", have, err)
	}
	old := time.Unix(1000, 0)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if err := again.Save(want); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("an equal value was written again: %v, %v", info.ModTime(), err)
	}
	if err := again.Save(map[string]int{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("an empty map left a file: %v", err)
	}
}

// TestErrors checks that a read error names the path, and that a failed write is repeated
// and reported by Err until it succeeds.
func TestErrors(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "later")
	f := statefile.New[map[string]int](dir, "ages.json")
	want := map[string]int{"a": 1}
	if err := f.Save(want); err == nil || f.Err() == nil {
		t.Fatal("saved into a directory that does not exist")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(want); err != nil || f.Err() != nil {
		t.Errorf("once there is a directory: %v, %v", err, f.Err())
	}
	path := filepath.Join(dir, "ages.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := statefile.New[map[string]int](dir, "ages.json")
	if have, err := broken.Load(); err == nil || have != nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a broken file loads as %v, %v", have, err)
	}
	if have := broken.LoadOrZero(slog.New(slog.DiscardHandler)); have != nil {
		t.Errorf("restored %v", have)
	}
	if err := broken.Save(want); err != nil {
		t.Fatal(err)
	}
	if have, err := broken.Load(); err != nil || !maps.Equal(have, want) {
		t.Errorf("after the repair: %v, %v", have, err)
	}
}

// TestRun checks that Run saves the newest value, at most once per period.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := statefile.New[int](dir, "n.json")
		var value, calls atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Run(ctx, time.Second, func() int { calls.Add(1); return int(value.Load()) }, slog.New(slog.DiscardHandler))
		}()
		for i := range int64(5) {
			value.Store(i)
			f.MarkDirty()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if have, err := f.Load(); err != nil || have != 4 || calls.Load() != 2 {
			t.Errorf("%d after %d saves, %v", have, calls.Load(), err)
		}
		cancel()
		<-done
	})
}
