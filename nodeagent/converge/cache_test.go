package converge_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/converge/convergetest"
)

// TestOwnChangesAreObservedAgain checks when the engine reads objects: once after its own changes,
// even if the version stays, and at once after changes of another writer. Otherwise it does not
// read.
func TestOwnChangesAreObservedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world := convergetest.NewWorld[item]()
		engine := &converge.Engine[[]item]{Stages: []converge.Stage[[]item]{
			converge.NewStage[[]item, item](&unversionedWrites{VersionedKind: world.VersionedKind("item")}, func(want []item) []item { return want }, nil),
		}}
		turn := 0
		once := func(want []item, changed int) (reads int) {
			t.Helper()
			before := world.Observed()
			turn++
			if r := engine.Once(t.Context(), want, fmt.Sprint(turn)); !r.Clean() || len(r.Changed) != changed {
				t.Fatalf("turn %d: changed %v, failed %v, want %d changes", turn, r.Changed, r.Failed, changed)
			}
			return world.Observed() - before
		}
		steps := []struct {
			name           string
			before         func()
			want           []item
			changed, reads int
		}{
			{name: "the first", want: items("a", "b"), changed: 2, reads: 1},
			{name: "another text", want: []item{{Name: "a", Text: "x"}, {Name: "b", Text: "t"}}, changed: 1, reads: 1},
			{name: "the same", want: []item{{Name: "a", Text: "x"}, {Name: "b", Text: "t"}}, reads: 1},
			{name: "unchanged", want: []item{{Name: "a", Text: "x"}, {Name: "b", Text: "t"}}},
			{name: "one comes", want: items("a", "b", "c"), changed: 2},
			{name: "one goes", want: items("a", "c"), changed: 1, reads: 1},
			{name: "one added and one removed", want: items("a", "d"), changed: 2, reads: 2},
			{name: "reverted by another writer", before: func() { world.Remove("a") }, want: items("a", "d"), changed: 1, reads: 1},
			{name: "repaired", want: items("a", "d"), reads: 1},
			{name: "the cache does not expire", before: func() { time.Sleep(time.Hour) }, want: items("a", "d")},
		}
		for _, s := range steps {
			if s.before != nil {
				s.before()
			}
			if reads := once(s.want, s.changed); reads != s.reads {
				t.Errorf("%s: read %d times, want %d", s.name, reads, s.reads)
			}
		}
		world.Fault = func(diff.Change[item]) error { return errors.New("no") }
		if r := engine.Once(t.Context(), items("a", "e"), "new"); len(r.Failed) == 0 {
			t.Fatal("nothing failed")
		}
		world.Fault = nil
		if reads := once(items("a", "e"), 2); reads == 0 {
			t.Error("not read again after a failure")
		}
		if d := cmp.Diff([]string{"a", "e"}, keys(world)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// unversionedWrites is a kind whose version does not change with its own writes.
type unversionedWrites struct {
	*convergetest.VersionedKind[item]
	own int
}

func (k *unversionedWrites) Version(ctx context.Context) (string, error) {
	text, err := k.VersionedKind.Version(ctx)
	if err != nil {
		return "", err
	}
	version, err := strconv.Atoi(text)
	return strconv.Itoa(version - k.own), err
}

func (k *unversionedWrites) Apply(ctx context.Context, changes []diff.Change[item]) error {
	before, err := k.VersionedKind.Version(ctx)
	if err != nil {
		return err
	}
	applied := k.VersionedKind.Apply(ctx, changes)
	after, err := k.VersionedKind.Version(ctx)
	if err != nil {
		return err
	}
	was, errWas := strconv.Atoi(before)
	is, errIs := strconv.Atoi(after)
	k.own += is - was
	return errors.Join(applied, errWas, errIs)
}
