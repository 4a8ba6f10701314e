package allocate

import (
	"bytes"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/lockfile"
)

// Check returns the reasons to run hawser allocate: missing allocations (code lock-stale),
// duplicates after a merge (lock-conflict), and requests that do not fit. If the list is empty,
// Allocate would neither add nor move an address.
func Check(top *schema.ClusterSet, lock *lockfile.Lock) diag.List {
	_, _, stale := AllocateAndCheck(top, lock)
	return stale
}

// AllocateAndCheck returns the results of Allocate and Check for the same lock, and allocates once.
func AllocateAndCheck(top *schema.ClusterSet, lock *lockfile.Lock) (allocated *lockfile.Lock, list, stale diag.List) {
	a := run(top, lock)
	return a.lock, a.list, a.staleReasons()
}

func (a *allocator) staleReasons() diag.List {
	list := slices.Clone(a.list)
	for i := range list {
		if list[i].Code != "becomes-shared" && list[i].Severity == diag.Warning {
			list[i].Severity = diag.Error
			list[i].Hint = strings.TrimPrefix(list[i].Hint+"; run hawser allocate to resolve it", "; ")
		}
	}
	if missing := slices.Compact(a.added); !list.HasErrors() && len(missing) > 0 {
		list = append(list, diag.Diagnostic{Severity: diag.Error, Code: "lock-stale",
			Summary: "the lock is stale: nothing allocated yet for " + humanize.FirstN(missing, 3), Hint: "run hawser allocate, and commit the lock"})
	}
	return list
}

// IsAppendOnly reports whether l equals before, or the result of Allocate for before and a valid
// top. Otherwise l has manual edits of addresses.
func IsAppendOnly(l, before *lockfile.Lock, top *schema.ClusterSet) bool {
	if len(l.Conflicts) > 0 {
		return false
	}
	content, err := l.Marshal()
	if err != nil {
		return false
	}
	allocated, list := Allocate(top, before)
	for _, candidate := range []*lockfile.Lock{before, allocated} {
		if raw, err := candidate.Marshal(); err == nil && bytes.Equal(raw, content) && (candidate == before || !list.HasErrors()) {
			return true
		}
	}
	return false
}
