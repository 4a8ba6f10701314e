package gitrepo_test

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/inotifytest"
	"hawser.dev/hawser/reconciler/gitrepo"
)

func TestWorkTreeUntouched(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	commitFile(t, work, "f", "one")
	put(t, work, "f", "edited")
	before := git(t, work, "status", "--porcelain")
	s := open(t, filepath.Join(work))
	sync(t, s, "main")
	publish(t, s, gitrepo.Hash{}, map[string][]byte{"x": nil})
	if diff := cmp.Diff(before, git(t, work, "status", "--porcelain")); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestCheckedOut(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	commitFile(t, work, "f", "one")
	git(t, work, "branch", "free")
	git(t, work, "worktree", "add", "-q", "-b", "linked", filepath.Join(t.TempDir(), "w"))
	bare := t.TempDir()
	git(t, bare, "init", "-q", "--bare", "-b", "main")
	tests := []struct {
		path, branch string
		want         bool
	}{
		{work, "main", true},
		{work, "linked", true},
		{work, "free", false},
		{bare, "main", false},
	}
	for _, tt := range tests {
		s := open(t, tt.path)
		sync(t, s)
		if have, err := s.CheckedOut(tt.branch); err != nil || have != tt.want {
			t.Errorf("%s of %s: %v, %v; want %v", tt.branch, tt.path, have, err, tt.want)
		}
	}
}

func TestLinkedWorkTree(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	want := commitFile(t, work, "dir/f", "one")
	linked := filepath.Join(t.TempDir(), "w")
	git(t, work, "worktree", "add", "-q", "-b", "linked", linked)
	s := open(t, filepath.Join(linked, "dir"))
	sync(t, s)
	if have := head(t, s, "linked").String(); have != want {
		t.Errorf("head %s, want %s", have, want)
	}
}

// startWatch starts Watch. It returns the channel of changes, and a function that stops the watch.
func startWatch(
	t *testing.T, s *gitrepo.Store, onPolling func(error),
) (changed <-chan struct{}, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tokens, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		s.Watch(ctx, func() {
			select {
			case tokens <- struct{}{}:
			default:
			}
		}, onPolling)
	}()
	<-tokens // Watch has started
	return tokens, func() { cancel(); <-done }
}

func TestWatchSeesCommit(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	commitFile(t, work, "f", "one")
	changed, stop := startWatch(t, open(t, work), func(err error) { t.Log(err) })
	defer stop()
	commitFile(t, work, "f", "two")
	wait(t, changed, "a commit")
	git(t, work, "branch", "-f", "deep/er/branch")
	wait(t, changed, "a branch in a new directory")
}

// TestWatchPolls checks that Watch polls without an inotify instance, and later uses inotify.
func TestWatchPolls(t *testing.T) {
	t.Parallel()
	if !inotifytest.RunIsolated(t) {
		return
	}
	releaseInstances := inotifytest.Exhaust(t)
	work := workTree(t)
	commitFile(t, work, "f", "one")
	var pollErrors []error
	onPolling := func(err error) { pollErrors = append(pollErrors, err) }
	changed, stop := startWatch(t, open(t, work), onPolling)
	commitFile(t, work, "f", "two")
	wait(t, changed, "a commit")
	git(t, work, "branch", "-f", "deep/er/branch")
	wait(t, changed, "a branch in a new directory")
	git(t, work, "pack-refs", "--all")
	wait(t, changed, "packed refs")
	releaseInstances()
	for inotifytest.Instances(t) != 1 {
		time.Sleep(10 * time.Millisecond)
	}
	wait(t, changed, "the first event after inotify was available")
	commitFile(t, work, "f", "three")
	wait(t, changed, "an inotify event for a commit")
	stop()
	if len(pollErrors) != 1 || !errors.Is(pollErrors[0], syscall.EMFILE) {
		t.Errorf("errors %v", pollErrors)
	}
}
