package dirwatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"hawser.dev/hawser/internal/inotifytest"
)

// watched starts Watch on a directory and returns the channel that receives a token for each
// change.
func watched(t *testing.T, dir string) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tokens, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		Watch(ctx, nil, Dir{Path: dir, Changed: func() { token(tokens) }})
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return tokens
}

func token(tokens chan<- struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}

// expect repeats an action until the channel receives a token, because the watch may start later.
func expect(t *testing.T, tokens <-chan struct{}, what string, do func()) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		do()
		select {
		case <-tokens:
			return
		case <-time.After(300 * time.Millisecond):
		case <-deadline:
			t.Fatalf("%s was not seen", what)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func swap(t *testing.T, link, target string) {
	t.Helper()
	_ = os.Remove(link + ".tmp")
	if err := os.Symlink(target, link+".tmp"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+".tmp", link); err != nil {
		t.Fatal(err)
	}
}

// TestChangedAtStart checks that Watch calls Changed when the watch starts, so no earlier change is
// missed.
func TestChangedAtStart(t *testing.T) {
	t.Parallel()
	select {
	case <-watched(t, t.TempDir()):
	case <-time.After(60 * time.Second):
		t.Error("nothing says that the watch has begun")
	}
}

func TestEdits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tokens := watched(t, dir)
	file := filepath.Join(dir, "a.yaml")
	expect(t, tokens, "a write", func() { write(t, file, "one") })
	expect(t, tokens, "an atomic rename", func() {
		write(t, filepath.Join(dir, ".new"), "two")
		if err := os.Rename(filepath.Join(dir, ".new"), file); err != nil {
			t.Fatal(err)
		}
	})
	expect(t, tokens, "a removal", func() {
		write(t, file, "three")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	})
}

func TestConfigMapSwap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, version := range []string{"..1", "..2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "f"), version)
	}
	swap(t, filepath.Join(dir, "..data"), "..1")
	tokens := watched(t, dir)
	expect(t, tokens, "the swap of ..data", func() { swap(t, filepath.Join(dir, "..data"), "..2") })
}

// TestUnlistedFilesAreIgnored checks that only changes of the listed files count.
func TestUnlistedFilesAreIgnored(t *testing.T) {
	t.Parallel()
	for _, watches := range []bool{true, false} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "counts"), "1")
		f := &watchedDir{dir: dir, files: []string{"counts"}}
		w := &watcher{dirs: []*watchedDir{f}, newWatcher: fsnotify.NewWatcher,
			ids: map[string]fileID{}}
		defer w.close()
		w.start()
		f.dirty = false
		dirty := func(file string) bool {
			if !watches {
				return f.pollChanged()
			}
			for {
				select {
				case event := <-w.events.Events:
					w.handleEvent(event)
					if filepath.Base(event.Name) == file {
						return f.dirty
					}
				case <-time.After(60 * time.Second):
					t.Fatal("no event")
				}
			}
		}
		write(t, filepath.Join(dir, "log"), "a line")
		if dirty("log") {
			t.Errorf("watches %t: a file that does not count makes the directory another", watches)
		}
		write(t, filepath.Join(dir, "counts"), "22")
		if !dirty("counts") {
			t.Errorf("watches %t: a file that counts does not", watches)
		}
	}
}

func TestDirIsRecreated(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "later")
	tokens := watched(t, dir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	expect(t, tokens, "a write in a directory made later", func() { write(t, filepath.Join(dir, "f"), "1") })
	expect(t, tokens, "a directory put in its place", func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	})
	expect(t, tokens, "a write in the new directory", func() { write(t, filepath.Join(dir, "f"), "2") })
}

func TestSymlinkTargetChanges(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	one, two, link := filepath.Join(parent, "one"), filepath.Join(parent, "two"), filepath.Join(parent, "link")
	for _, dir := range []string{one, two} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	swap(t, link, one)
	tokens := watched(t, link)
	expect(t, tokens, "a write behind the link", func() { write(t, filepath.Join(one, "f"), "1") })
	swap(t, link, two)
	expect(t, tokens, "a write behind the swapped link", func() { write(t, filepath.Join(two, "f"), "2") })
}

// TestDirsInOneParent creates two directories at different times. Each is notified of its
// own changes only.
func TestDirsInOneParent(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	one, two := filepath.Join(parent, "one"), filepath.Join(parent, "two")
	if err := os.Mkdir(one, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ones, twos, done := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	go func() {
		Watch(ctx, nil, Dir{Path: one, Changed: func() { token(ones) }}, Dir{Path: two, Changed: func() { token(twos) }})
		close(done)
	}()
	defer func() { cancel(); <-done }()
	expect(t, twos, "the begin", func() {})
	expect(t, ones, "a write in the one", func() { write(t, filepath.Join(one, "f"), "1") })
	if err := os.Mkdir(two, 0o700); err != nil {
		t.Fatal(err)
	}
	expect(t, twos, "a write in the other", func() { write(t, filepath.Join(two, "f"), "1") })
	expect(t, ones, "a directory put in the one's place", func() {
		if err := os.RemoveAll(one); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(one, 0o700); err != nil {
			t.Fatal(err)
		}
	})
	expect(t, ones, "a write in the new one", func() { write(t, filepath.Join(one, "f"), "2") })
}

// TestPolling checks that Watch polls while no inotify instance is available.
func TestPolling(t *testing.T) {
	t.Parallel()
	if !inotifytest.RunIsolated(t) {
		return
	}
	give := inotifytest.Exhaust(t)
	parent := t.TempDir()
	one, two := filepath.Join(parent, "one"), filepath.Join(parent, "two")
	for _, dir := range []string{one, two} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ones, twos, done := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	var told []error
	go func() {
		Watch(ctx, func(err error) { told = append(told, err) }, Dir{Path: one, Changed: func() { token(ones) }}, Dir{Path: two, Changed: func() { token(twos) }})
		close(done)
	}()
	n := 0
	expect(t, ones, "a new file", func() { n++; write(t, filepath.Join(one, fmt.Sprint("f", n)), "x") })
	expect(t, twos, "an edit", func() { n++; write(t, filepath.Join(two, "f"), fmt.Sprint(n)) })
	expect(t, ones, "a link", func() { n++; swap(t, filepath.Join(one, "data"), fmt.Sprint("to", n)) })
	give()
	for inotifytest.Instances(t) != 1 { // for both directories
		time.Sleep(10 * time.Millisecond)
	}
	expect(t, twos, "the first event", func() { n++; write(t, filepath.Join(two, "f"), fmt.Sprint(n)) })
	cancel()
	<-done
	if len(told) != 1 || !errors.Is(told[0], syscall.EMFILE) {
		t.Errorf("errors %v", told)
	}
}
