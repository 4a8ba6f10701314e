package converge

import (
	"context"
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

func (t thing) Equal(other thing) bool { return t == other }

// thingKind is a kind whose version never changes. It reads and writes nothing.
type thingKind struct{}

func (thingKind) Name() string                                      { return "thing" }
func (thingKind) Observe(context.Context) ([]thing, error)          { return nil, nil }
func (thingKind) Apply(context.Context, []diff.Change[thing]) error { return nil }
func (thingKind) Version(context.Context) (string, error)           { return "1", nil }

// normalizingKind is a kind whose kernel fills in fields.
type normalizingKind struct{ thingKind }

func (normalizingKind) Normalize(want, _ thing) thing { return want }

func things(n int) []thing {
	out := make([]thing, n)
	for i := range out {
		out[i] = thing{fmt.Sprintf("thing-%05d", i), "as it was"}
	}
	return out
}

// TestNarrow checks that the comparison of changed parts finds the changes of a full comparison.
func TestNarrow(t *testing.T) {
	t.Parallel()
	const size = 2000
	tests := []struct {
		name  string
		edit  func(r *rand.Rand, list []thing) []thing
		most  int // maximum number of compared observed objects; 0 = none
		twice bool
	}{
		{name: "nothing", edit: func(_ *rand.Rand, l []thing) []thing { return l }},
		{name: "some change", most: 20, edit: func(r *rand.Rand, l []thing) []thing {
			for range 20 {
				l[r.IntN(len(l))].text = "new"
			}
			return l
		}},
		{name: "some go", most: size, edit: func(r *rand.Rand, l []thing) []thing {
			for range 20 {
				i := r.IntN(len(l))
				l = slices.Delete(l, i, i+1)
			}
			return l
		}},
		{name: "some come", most: size, edit: func(r *rand.Rand, l []thing) []thing {
			for n := range 20 {
				l = slices.Insert(l, r.IntN(len(l)+1), thing{fmt.Sprint("new ", n), "x"})
			}
			return l
		}},
		{name: "all of it", most: size, edit: func(r *rand.Rand, l []thing) []thing {
			for n := 9; n >= 0; n-- { // from the end, so that the indices stay apart
				at := n * size / 10
				l[at+150].text = "new"
				l = slices.Insert(l, at+100, thing{fmt.Sprint("new ", n), "x"})
				l = slices.Delete(l, at, at+r.IntN(40))
			}
			return l
		}},
		{name: "one moves", most: size, edit: func(_ *rand.Rand, l []thing) []thing { return append(l[1:], l[0]) }},
		{name: "the end is removed", most: 300, edit: func(_ *rand.Rand, l []thing) []thing { return l[:len(l)-300] }},
		{name: "all go", edit: func(_ *rand.Rand, l []thing) []thing { return nil }, most: size},
		{name: "a third changes", edit: func(_ *rand.Rand, l []thing) []thing {
			for i := range l {
				if i%3 == 0 {
					l[i].text = "new"
				}
			}
			return l
		}, most: size/3 + 1},
		{name: "turned round", edit: func(_ *rand.Rand, l []thing) []thing { slices.Reverse(l); return l }, most: size},
		{name: "one twice", edit: func(_ *rand.Rand, l []thing) []thing { return append(l, l[7]) }, most: size, twice: true},
		{name: "a new one twice", edit: func(_ *rand.Rand, l []thing) []thing { return append(l, thing{"n", ""}, thing{"n", ""}) }, most: size, twice: true},
	}
	for _, tt := range tests {
		for _, exact := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s exact %t", tt.name, exact), func(t *testing.T) {
				t.Parallel()
				most, kind := tt.most, Kind[thing](thingKind{})
				if !exact {
					most, kind = size, normalizingKind{}
				}
				for seed := range uint64(50) {
					r := rand.New(rand.NewPCG(seed, 1))
					clean := things(size)
					have := slices.Clone(clean)
					r.Shuffle(len(have), func(i, j int) { have[i], have[j] = have[j], have[i] })
					checkChangedParts(t, kind, tt.edit(r, slices.Clone(clean)), clean, have, most, tt.twice)
				}
			})
		}
	}
}

func checkChangedParts(t *testing.T, kind Kind[thing], want, clean, have []thing, most int, twice bool) {
	t.Helper()
	full, err := diff.Compute(want, have)
	if (err != nil) != twice {
		t.Fatalf("full comparison: %v", err)
	}
	s := &stage[[]thing, thing]{kind: kind}
	w, h := s.changedParts(want, clean, have)
	if len(w) == len(want) && len(h) == len(have) && most == len(have) {
		return // it was the full comparison
	}
	changes, err := diff.Compute(w, h)
	if (err != nil) != twice {
		t.Fatalf("error %v", err)
	}
	if d := cmp.Diff(full, changes, cmp.AllowUnexported(thing{})); !twice && d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
	if len(h) > most {
		t.Errorf("%d of %d are compared, want at most %d", len(h), len(have), most)
	}
}
