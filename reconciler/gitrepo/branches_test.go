package gitrepo_test

import (
	"errors"
	"strings"
	"testing"

	"hawser.dev/hawser/reconciler/gitrepo"
)

// TestOthers checks that the error about a missing branch lists the existing branches.
func TestOthers(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, work, url string, push func(...string)) {
		commitFile(t, work, "clusterset.yaml", "one")
		git(t, work, "branch", "next")
		git(t, work, "tag", "v1")
		push("main", "next", "v1")
		s := open(t, url)
		sync(t, s, "master", "v1")
		for name, want := range map[string]string{
			"master": ": no such branch (there are main, next)",
			"v1":     ": no such branch, but a tag of that name (there are main, next)",
		} {
			if _, err := s.Head(name); !errors.Is(err, gitrepo.ErrNoBranch) || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("head of %s: %v, want an error that ends in %q", name, err, want)
			}
		}
	})
}
