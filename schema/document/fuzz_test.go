package document_test

import (
	"reflect"
	"strings"
	"testing"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/yamlsize"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
)

// FuzzParse checks that each text that is not YAML has a finding with a line, a column and a hint.
// The finding quotes only a short part of the text.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "\n\n", "%YAML 1.2\n---\na: b\n", "# c\n%YAML 2.0\n--- a\n", "%TAG ! x\n%TAG ! y\n---\n", "%", "%%YAML", "a: !x!y z", "!<", "*a", "a: [*b]", "a: &b c\n<<: *d",
		"{{- if }}\na: b", "a: {{ b }}", "{% if %}", "\ta: b", "a:\n\t- b", "a: \"b", "'", "a: 'b\n---\nc", "a: b\n---\nc: d", "a: b\n...\nc", "\ufeffa: b", "a: \x00", "a: \u0085",
		"a: \"\\q\"", "a: \"\\x\"", "a: \"\\uD800\"", "? a\n- b", "- a\n b: c", "a: |0\n b", "a: > x\n", "a: @b", "a: `b", "[", "{a", "{a: b\nc", "a: b: c", "a\nb: c", "]", "}", ", ", "&", "a: &", "*",
		"a: *" + strings.Repeat("SECRET", 100),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		checkFindings(t, raw)
	})
}

// TestParseDeep checks texts with too many values, and texts with too many levels.
func TestParseDeep(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a: [" + strings.Repeat("a,", yamlsize.MaxValues), strings.Repeat("[", 10_001), strings.Repeat("- ", 20_000), strings.Repeat("{a: ", 10_001)} {
		checkFindings(t, []byte(text))
	}
}

func checkFindings(t *testing.T, raw []byte) {
	t.Helper()
	src := document.New("a.yaml", raw, reflect.TypeFor[schema.ClusterSet]())
	for _, d := range src.Parse() {
		if !d.Pos.IsValid() && d.Code != "empty-file" {
			t.Errorf("no line: %v\n%q", d, raw)
		}
		if lines := strings.Count(string(raw), "\n") + 1; d.Pos.Line > lines || d.Pos.IsValid() && d.Pos.Column < 1 {
			t.Errorf("at %s of %d lines\n%q", d.Pos, lines, raw)
		}
		if d.Hint == "" || len([]rune(d.Summary)) > 100+diag.MaxQuoted {
			t.Errorf("%v, hint %q\n%q", d, d.Hint, raw)
		}
	}
}
