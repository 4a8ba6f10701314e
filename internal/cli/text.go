package cli

import (
	"regexp"
	"strings"

	"hawser.dev/hawser/internal/diag"
)

// ShellQuote quotes a text as one word of a shell command line.
func ShellQuote(text string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./:=@%+,-]+$`).MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// IsError reports whether a finding is an error.
func IsError(d diag.Diagnostic) bool { return d.Severity == diag.Error }

// OrEmpty makes an empty list print as [] in JSON.
func OrEmpty(list diag.List) diag.List {
	if list == nil {
		return diag.List{}
	}
	return list
}
