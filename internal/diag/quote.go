package diag

import (
	"strconv"
	"unicode/utf8"
)

// MaxQuoted is the most characters of a value that a finding quotes. A value in the wrong file can
// be a secret.
const MaxQuoted = 40

// Clip returns at most MaxQuoted characters of a value, with "…" if it cut some.
func Clip(value string) string {
	if len(value) <= MaxQuoted || utf8.RuneCountInString(value) <= MaxQuoted {
		return value
	}
	n := 0
	for at := range value {
		if n++; n > MaxQuoted {
			return value[:at] + "…"
		}
	}
	return value
}

// Quote returns a value in double quotes, clipped, with control characters escaped.
func Quote(value string) string { return strconv.Quote(Clip(value)) }
