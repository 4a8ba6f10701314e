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
		{name: "all go", edit: func(_ *rand.Rand, l []thing) []thing { return nil }, wide: true},
		{name: "turned round", edit: func(_ *rand.Rand, l []thing) []thing { slices.Reverse(l); return l }, wide: true},
		{name: "one twice", edit: func(_ *rand.Rand, l []thing) []thing { return append(l, l[7]) }, wide: true, twice: true},
		{name: "a new one twice", edit: func(_ *rand.Rand, l []thing) []thing { return append(l, thing{"n", ""}, thing{"n", ""}) }, twice: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(50) {
				r := rand.New(rand.NewPCG(seed, 1))
				clean := things(size)
				have := slices.Clone(clean)
				r.Shuffle(len(have), func(i, j int) { have[i], have[j] = have[j], have[i] })
				want := tt.edit(r, slices.Clone(clean))
				full, err := diff.Compute(want, have)
				if (err != nil) != tt.twice {
					t.Fatalf("full comparison: %v", err)
				}
				w, h, ok := narrow(want, clean, have)
				if ok == tt.wide {
					t.Fatalf("seed %d: ok %t, want %t", seed, ok, !tt.wide)
				}
				if !ok {
					continue
				}
				changes, err := diff.Compute(w, h)
				if (err != nil) != tt.twice {
					t.Fatalf("seed %d: error %v", seed, err)
				}
				if d := cmp.Diff(full, changes, cmp.AllowUnexported(thing{})); !tt.twice && d != "" {
					t.Fatalf("seed %d: (-want +got):\n%s", seed, d)
				}
				if len(h) > size/narrowPart {
					t.Errorf("seed %d: %d of %d are compared", seed, len(h), size)
				}
			}
		})
	}
}
