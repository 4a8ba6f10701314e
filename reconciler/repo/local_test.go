package repo_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/reconciler/repo"
)

func TestWorkTreeUntouched(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	commitFile(t, work, "f", "one")
	put(t, work, "f", "edited")
	before := git(t, work, "status", "--porcelain")
	s := open(t, filepath.Join(work))
	sync(t, s, "main")
	publish(t, s, repo.Hash{}, map[string][]byte{"x": nil})
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

func TestFindInClone(t *testing.T) {
	t.Parallel()
	work, clone := workTree(t), filepath.Join(t.TempDir(), "clone")
	want := commitFile(t, work, "f", "one")
	git(t, work, "branch", "rendered")
	git(t, work, "clone", "-q", work, clone)
	s := open(t, clone)
	sync(t, s)
	for _, name := range []string{"main", "rendered", "origin/rendered"} {
		if have, err := s.Find(name); err != nil || have.String() != want {
			t.Errorf("%s: %s, %v; want %s", name, have, err, want)
		}
	}
	if _, err := s.Find("nothing"); !errors.Is(err, repo.ErrNoBranch) {
		t.Errorf("nothing: %v", err)
	}
}

func TestWatchSeesCommit(t *testing.T) {
	t.Parallel()
	work := workTree(t)
	commitFile(t, work, "f", "one")
	s := open(t, work)
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	<-changed // the watch stands
	commitFile(t, work, "f", "two")
	wait(t, changed, "a commit")
	git(t, work, "branch", "-f", "deep/er/branch")
	wait(t, changed, "a branch in a new folder")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
