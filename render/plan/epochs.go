package plan

import (
	"slices"
	"strings"
)

// epochBreakage says what other key epochs break: everything, unless one stays.
func epochBreakage(f Field) string {
	want, have := strings.Split(f.Want, ", "), strings.Split(f.Have, ", ")
	if slices.ContainsFunc(have, func(e string) bool { return slices.Contains(want, e) }) {
		return ""
	}
	return "no epoch stays: every tunnel ends until both its ends have the new keys"
}

// rotation says what becomes of the links when epochs come or go and one stays.
func rotation(f Field) string {
	want, have := strings.Split(f.Want, ", "), strings.Split(f.Have, ", ")
	gone := slices.DeleteFunc(have, func(e string) bool { return slices.Contains(want, e) })
	if len(gone) == 0 {
		return proven
	}
	return "nothing is lost where no link uses epoch " + strings.Join(gone, ", ") + " any more: hawser keys epochs"
}

// keyChanges reports whether a key of an epoch that stays is another one, or no
// epoch stays.
func keyChanges(f Field) bool {
	have := map[string]string{}
	for entry := range strings.SplitSeq(f.Have, ", ") {
		epoch, key, _ := strings.Cut(entry, ":")
		have[epoch] = key
	}
	stays := false
	for entry := range strings.SplitSeq(f.Want, ", ") {
		epoch, key, _ := strings.Cut(entry, ":")
		if was, known := have[epoch]; known {
			stays = true
			if was != key {
				return true
			}
		}
	}
	return !stays
}
