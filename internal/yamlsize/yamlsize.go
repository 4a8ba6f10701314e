// Package yamlsize limits the number of values in a YAML text before it is parsed. A parser needs
// about 400 bytes for a value of two bytes.
package yamlsize

import (
	"bytes"
	"fmt"
	"iter"
	"strings"

	"hawser.dev/hawser/internal/diag"
)

// MaxValues is the maximum number of indicators of YAML values in a file. A file of 32 MiB can have
// 16 million values, which need more than 6 GB; a million of them needs about 450 MB.
const MaxValues = 1_000_000

// Excess reports whether a YAML text has more than MaxValues indicators, and where. It does not
// parse the text, so call it before the parser.
func Excess(file string, raw []byte) (diag.Pos, bool) {
	n := 0
	for i := range indicators(raw) {
		if n++; n > MaxValues {
			before := raw[:i]
			return diag.Pos{File: file, Line: bytes.Count(before, []byte("\n")) + 1, Column: i - bytes.LastIndexByte(before, '\n'), Width: 1}, true
		}
	}
	return diag.Pos{}, false
}

// Summary returns the summary of a finding about too many values.
func Summary() string { return fmt.Sprintf("more than %d YAML values in one file", MaxValues) }

// Values counts the indicators of a YAML text. A document has at most two values for each: a key
// and its value.
func Values(raw []byte) int {
	n := 0
	for range indicators(raw) {
		n++
	}
	return n
}

// indicators yields the offsets of all bytes that can begin or separate values: commas, colons,
// hyphens, question marks, and opening brackets and braces. Bytes within a plain text, as in
// "exports[a/b-c]", do not count.
func indicators(raw []byte) iter.Seq[int] {
	inText := func(i int) bool {
		return i >= 0 && i < len(raw) && raw[i] > ' ' && raw[i] < 0x7f && !strings.ContainsRune(`,[]{}:-?"'`, rune(raw[i]))
	}
	return func(yield func(int) bool) {
		for i, c := range raw {
			found := false
			switch c {
			case ',':
				found = true
			case '[', '{':
				found = !inText(i - 1)
			case ':', '-', '?':
				found = !inText(i+1) || i > 0 && (raw[i-1] == '"' || raw[i-1] == '\'')
			}
			if found && !yield(i) {
				return
			}
		}
	}
}
