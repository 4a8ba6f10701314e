package converge_test

import (
	"fmt"
	"slices"
	"testing"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/converge/convergetest"
	"hawser.dev/hawser/schema/fabric"
)

// item is an object of the tests.
type item struct {
	Name   string
	Text   string
	Shape  string // cannot change in place
	Token  fabric.Secret
	Origin string
}

func (i item) Key() string { return i.Name }

func (i item) Equal(other item) bool { return i == other }

func (i item) Fields() []diff.Field {
	return []diff.Field{
		{Name: "text", Value: i.Text},
		{Name: "shape", Value: i.Shape, Immutable: true},
		{Name: "token", Value: string(i.Token[:]), Secret: true},
	}
}

func TestLaws(t *testing.T) {
	t.Parallel()
	var token fabric.Secret
	for i := range token {
		token[i] = byte(i + 33)
	}
	samples := convergetest.Samples[item]{
		Want: []item{{Name: "a", Text: "one", Shape: "round", Token: token}, {Name: "b", Text: "two"}},
		Vary: func(i item) []item {
			text, shape, secret := i, i, i
			text.Text, shape.Shape, secret.Token = "other", "square", fabric.Secret{1}
			return []item{text, shape, secret}
		},
	}
	for _, sort := range []string{"plain", "versioned", "quiet"} {
		t.Run(sort, func(t *testing.T) {
			t.Parallel()
			world := convergetest.NewWorld[item]()
			s := samples
			s.Tamper = map[string]func(*testing.T){
				"removed": func(*testing.T) { world.Remove("a") },
				"added":   func(*testing.T) { world.Put(item{Name: "c"}) },
			}
			s.Foreign = func(*testing.T) func() error {
				world.PutForeign(item{Name: "f"})
				return func() error {
					if !slices.Contains(world.Foreign(), "f") {
						return fmt.Errorf("f is gone")
					}
					return nil
				}
			}
			s.Conflict = func(t *testing.T) (item, func() error) {
				return item{Name: "f"}, s.Foreign(t)
			}
			newKind := func(*testing.T) converge.Kind[item] {
				switch sort {
				case "versioned":
					return world.VersionedKind("item")
				case "quiet":
					return &unversionedWrites{VersionedKind: world.VersionedKind("item")}
				}
				return world.Kind("item")
			}
			convergetest.Laws(t, newKind, s)
		})
	}
}
