package converge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diff"
)

type thing struct{ name, text string }

func (t thing) Key() string          { return t.name }
func (t thing) Fields() []diff.Field { return []diff.Field{{Name: "text", Value: t.text}} }

func things(n int) []thing {
	out := make([]thing, n)
	for i := range out {
		out[i] = thing{fmt.Sprintf("thing-%05d", i), "as it was"}
	}
	return out
}

// TestNarrow demands the changes of the full comparison, whatever happened to
// the list.
func TestNarrow(t *testing.T) {
	t.Parallel()
	const size = 2000
	tests := []struct {
		name  string
		edit  func(r *rand.Rand, list []thing) []thing
		wide  bool // too much for narrow
		exact bool // but not where clean may stand for have
		twice bool
	}{
		{name: "nothing", edit: func(_ *rand.Rand, l []thing) []thing { return l }},
		{name: "some change", edit: func(r *rand.Rand, l []thing) []thing {
			for range 20 {
				l[r.IntN(len(l))].text = "new"
			}
			return l
		}},
		{name: "some go", edit: func(r *rand.Rand, l []thing) []thing {
			for range 20 {
				i := r.IntN(len(l))
				l = slices.Delete(l, i, i+1)
			}
			return l
		}},
		{name: "some come", edit: func(r *rand.Rand, l []thing) []thing {
			for n := range 20 {
				l = slices.Insert(l, r.IntN(len(l)+1), thing{fmt.Sprint("new ", n), "x"})
			}
			return l
		}},
		{name: "all of it", edit: func(r *rand.Rand, l []thing) []thing {
			for n := 9; n >= 0; n-- { // from the end, so that the places stay apart
				at := n * size / 10
				l[at+150].text = "new"
				l = slices.Insert(l, at+100, thing{fmt.Sprint("new ", n), "x"})
				l = slices.Delete(l, at, at+r.IntN(40))
			}
			return l
		}},
		{name: "one moves", edit: func(_ *rand.Rand, l []thing) []thing { return append(l[1:], l[0]) }},
		{name: "the end goes", edit: func(_ *rand.Rand, l []thing) []thing { return l[:len(l)-300] }},
		{name: "all go", edit: func(_ *rand.Rand, l []thing) []thing { return nil }, wide: true, exact: true},
		{name: "a third changes", edit: func(_ *rand.Rand, l []thing) []thing {
			for i := range l {
				if i%3 == 0 {
					l[i].text = "new"
				}
			}
			return l
		}, wide: true, exact: true},
		{name: "turned round", edit: func(_ *rand.Rand, l []thing) []thing { slices.Reverse(l); return l }, wide: true},
		{name: "one twice", edit: func(_ *rand.Rand, l []thing) []thing { return append(l, l[7]) }, wide: true, twice: true},
		{name: "a new one twice", edit: func(_ *rand.Rand, l []thing) []thing { return append(l, thing{"n", ""}, thing{"n", ""}) }, twice: true},
	}
	for _, tt := range tests {
		for _, exact := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s exact %t", tt.name, exact), func(t *testing.T) {
				t.Parallel()
				wide := tt.wide && (!exact || !tt.exact)
				for seed := range uint64(50) {
					r := rand.New(rand.NewPCG(seed, 1))
					clean := things(size)
					have := slices.Clone(clean)
					r.Shuffle(len(have), func(i, j int) { have[i], have[j] = have[j], have[i] })
					narrowed(t, tt.edit(r, slices.Clone(clean)), clean, have, exact, wide, tt.twice)
				}
			})
		}
	}
}

func narrowed(t *testing.T, want, clean, have []thing, exact, wide, twice bool) {
	t.Helper()
	full, err := diff.Compute(want, have)
	if (err != nil) != twice {
		t.Fatalf("full comparison: %v", err)
	}
	w, h, ok := narrow(want, clean, have, exact)
	if ok == wide {
		t.Fatalf("ok %t, want %t", ok, !wide)
	}
	if !ok {
		return
	}
	changes, err := diff.Compute(w, h)
	if (err != nil) != twice {
		t.Fatalf("error %v", err)
	}
	if d := cmp.Diff(full, changes, cmp.AllowUnexported(thing{})); !twice && d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
	if !exact && len(h) > len(have)/narrowPart {
		t.Errorf("%d of %d are compared", len(h), len(have))
	}
}
