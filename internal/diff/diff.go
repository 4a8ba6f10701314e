// Package diff holds the one differ of Hawser: every comparison of desired with observed
// state (kernel objects, rendered files, DNS data) goes through Compute.
package diff

import (
	"cmp"
	"fmt"
	"slices"
)

// Field is one attribute of a Spec as text. The same list decides equality,
// prints the plan, fills log attributes and hides secrets.
type Field struct {
	Name      string
	Value     string
	Secret    bool // printed as "(sensitive)"
	Immutable bool // a difference means replace instead of update
}

// Text returns the value as it may be shown.
func (f Field) Text() string {
	if f.Secret && f.Value != "" {
		return "(sensitive)"
	}
	return f.Value
}

// Spec is one thing that should exist.
type Spec interface {
	// Key identifies the thing among all of its kind.
	Key() string
	// Fields returns every attribute that Key does not hold, always in the same order.
	Fields() []Field
}

// Op is what a change does.
type Op string

const (
	// Create makes what does not exist.
	Create Op = "+"
	// Update changes what exists in place.
	Update Op = "~"
	// Replace deletes and creates, because an immutable field differs.
	Replace Op = "±"
	// Delete removes what exists.
	Delete Op = "-"
)

// Change is one difference. Want is zero for Delete, Have is zero for Create.
type Change[S Spec] struct {
	Op   Op
	Key  string
	Want S
	Have S
}

// Delta is one field of a change with its two values.
type Delta struct {
	Name   string
	Have   string
	Want   string
	Secret bool
	Forces bool // this field forces the replacement
}

// Deltas returns the fields that differ, in field order; for Create and Delete
// all fields that are not empty.
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
		d.Forces = c.Op == Replace && (h.Immutable || w.Immutable)
		out = append(out, d)
	}
	return out
}

// Compute compares the two sides and returns the changes that turn have into
// want, ordered by key. A key that occurs twice on one side is an error, as
// neither side could then be reached.
func Compute[S Spec](want, have []S) ([]Change[S], error) {
	places := make(map[string]int, len(have))
	for at, h := range have {
		key := h.Key()
		if _, dup := places[key]; dup {
			return nil, fmt.Errorf("have holds %q twice", key)
		}
		places[key] = at
	}
	wanted := make([]bool, len(have))
	created := map[string]bool{}
	var changes []Change[S]
	for _, w := range want {
		key := w.Key()
		at, exists := places[key]
		if created[key] || exists && wanted[at] {
			return nil, fmt.Errorf("want holds %q twice", key)
		}
		if !exists {
			created[key] = true
			changes = append(changes, Change[S]{Op: Create, Key: key, Want: w})
			continue
		}
		wanted[at] = true
		if op := compare(w.Fields(), have[at].Fields()); op != "" {
			changes = append(changes, Change[S]{Op: op, Key: key, Want: w, Have: have[at]})
		}
	}
	for at, h := range have {
		if !wanted[at] {
			changes = append(changes, Change[S]{Op: Delete, Key: h.Key(), Have: h})
		}
	}
	slices.SortFunc(changes, func(a, b Change[S]) int { return cmp.Compare(a.Key, b.Key) })
	return changes, nil
}

// compare returns the operation that turns have into want, or "" when they are equal.
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
