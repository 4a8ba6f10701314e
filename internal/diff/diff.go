// Package diff compares desired with observed state. All comparisons of kernel objects, rendered
// files and DNS data use Compute.
package diff

import (
	"cmp"
	"fmt"
	"slices"
)

// Field is one attribute of a Spec as text. Fields decide equality, and appear in plans and log
// attributes without secrets.
type Field struct {
	Name      string
	Value     string
	Secret    bool // printed as "(sensitive)"
	Immutable bool // a difference needs Replace instead of Update
}

// Text returns the value, or "(sensitive)" for a secret.
func (f Field) Text() string {
	if f.Secret && f.Value != "" {
		return "(sensitive)"
	}
	return f.Value
}

// Spec is the desired or observed state of an object.
type Spec interface {
	// Key returns the name of the object, which is unique among objects of its kind.
	Key() string
	// Fields returns all attributes that are not in Key, always in the same order.
	Fields() []Field
}

// Op is the operation of a change.
type Op string

const (
	// Create creates a missing object.
	Create Op = "+"
	// Update changes an existing object in place.
	Update Op = "~"
	// Replace deletes and recreates an object, because an immutable field differs.
	Replace Op = "±"
	// Delete removes an existing object.
	Delete Op = "-"
)

// Change is one difference. Want is zero for Delete, Have is zero for Create.
type Change[S Spec] struct {
	Op   Op
	Key  string
	Want S
	Have S
}

// Delta is a field of a change with both values.
type Delta struct {
	Name          string
	Have          string
	Want          string
	Secret        bool
	ForcesReplace bool // this field forces the replacement
}

// Deltas returns the fields that differ, in field order. For Create and Delete it returns all
// fields that are not empty.
func (c Change[S]) Deltas() []Delta {
	var have, want []Field
	if c.Op != Create {
		have = c.Have.Fields()
	}
	if c.Op != Delete {
		want = c.Want.Fields()
	}
	var out []Delta
	for i := range max(len(have), len(want)) {
		var d Delta
		var h, w Field
		if i < len(have) {
			h = have[i]
			d.Name, d.Secret = h.Name, h.Secret
		}
		if i < len(want) {
			w = want[i]
			d.Name, d.Secret = w.Name, d.Secret || w.Secret
		}
		if h.Value == w.Value {
			continue
		}
		d.Have, d.Want = h.Text(), w.Text()
		d.ForcesReplace = c.Op == Replace && (h.Immutable || w.Immutable)
		out = append(out, d)
	}
	return out
}

// Compute returns the changes that turn have into want, ordered by key. It fails if a key occurs
// twice in one list, because no changes could then lead to want.
func Compute[S Spec](want, have []S) ([]Change[S], error) {
	indexByKey := make(map[string]int, len(have))
	for i, h := range have {
		key := h.Key()
		if _, dup := indexByKey[key]; dup {
			return nil, fmt.Errorf("have holds %q twice", key)
		}
		indexByKey[key] = i
	}
	wanted := make([]bool, len(have))
	created := map[string]bool{}
	var changes []Change[S]
	for _, w := range want {
		key := w.Key()
		i, exists := indexByKey[key]
		if created[key] || exists && wanted[i] {
			return nil, fmt.Errorf("want holds %q twice", key)
		}
		if !exists {
			created[key] = true
			changes = append(changes, Change[S]{Op: Create, Key: key, Want: w})
			continue
		}
		wanted[i] = true
		if op := compare(w.Fields(), have[i].Fields()); op != "" {
			changes = append(changes, Change[S]{Op: op, Key: key, Want: w, Have: have[i]})
		}
	}
	for i, h := range have {
		if !wanted[i] {
			changes = append(changes, Change[S]{Op: Delete, Key: h.Key(), Have: h})
		}
	}
	slices.SortFunc(changes, func(a, b Change[S]) int { return cmp.Compare(a.Key, b.Key) })
	return changes, nil
}

// compare returns the operation that turns have into want, or "" if they are equal.
func compare(want, have []Field) Op {
	var op Op
	for i := range max(len(want), len(have)) {
		var w, h Field
		if i < len(want) {
			w = want[i]
		}
		if i < len(have) {
			h = have[i]
		}
		if w.Value == h.Value {
			continue
		}
		if w.Immutable || h.Immutable {
			return Replace
		}
		op = Update
	}
	return op
}
