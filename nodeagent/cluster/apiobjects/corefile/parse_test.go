package corefile

import (
	"errors"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/diag"
)

// TestTokens compares tokens with the results of allTokens of github.com/coredns/caddy/caddyfile.
func TestTokens(t *testing.T) {
	t.Parallel()
	type word struct {
		text  string
		line  int
		first bool
		raw   string // bytes of the file
	}
	for text, want := range map[string][]word{
		"a # b\nc":         {{"a", 1, true, "a"}, {"c", 2, true, "c"}},
		"a#b c\nd":         {{"a", 1, true, "a#b"}, {"c", 1, false, "c"}, {"d", 2, true, "d"}},
		"a {#b\n}#\n":      {{"a", 1, true, "a"}, {"{", 1, false, "{#b"}, {"}", 2, true, "}#"}},
		`"a#b" c`:          {{"a#b", 1, true, `"a#b"`}, {"c", 1, false, "c"}},
		`a"b#c"`:           {{`a"b`, 1, true, `a"b#c"`}},
		`"a"b`:             {{"a", 1, true, `"a"`}, {"b", 1, false, "b"}},
		`"a\"b\c\\" d`:     {{`a"b\c\\`, 1, true, `"a\"b\c\\"`}, {"d", 1, false, "d"}},
		"\"a\nb\" c\nd":    {{"a\nb", 1, true, "\"a\nb\""}, {"c", 2, false, "c"}, {"d", 3, true, "d"}},
		"a\r\nb\rc\r":      {{"a", 1, true, "a"}, {"bc", 2, true, "b\rc"}},
		"a\u00a0b\u2003{":  {{"a", 1, true, "a"}, {"b", 1, false, "b"}, {"{", 1, false, "{"}},
		"\ufeffa \ufeff":   {{"a", 1, true, "a"}, {"\ufeff", 1, false, "\ufeff"}},
		"a\xff":            {{"a\ufffd", 1, true, "a\xff"}},
		`a "" b`:           {{"a", 1, true, "a"}, {"", 1, false, `""`}, {"b", 1, false, "b"}},
		`a "b`:             {{"a", 1, true, "a"}, {"b", 1, false, `"b`}},
		`a "`:              {{"a", 1, true, "a"}},
		`a "\`:             {{"a", 1, true, "a"}},
		"# a\n\n\t\v\fb\n": {{"b", 3, true, "b"}},
	} {
		var have []word
		for _, token := range tokens(text) {
			have = append(have, word{token.text, token.line, token.first, text[token.start:token.end]})
		}
		if diff := gocmp.Diff(want, have, gocmp.AllowUnexported(word{})); diff != "" {
			t.Errorf("%q (-want +have)\n%s", text, diff)
		}
	}
}

// TestCommentWithinWord checks keys and braces directly before a #. CoreDNS ignores the rest of
// such a word.
func TestCommentWithinWord(t *testing.T) {
	t.Parallel()
	const theirs = ".:53 {\n    errors\n    log .#{\n}#x\nclusterset.local:53#x {#x\n}\n"
	var d diag.Diagnostic
	if _, err := Insert(theirs, forward()); !errors.As(err, &d) || d.Code != ZoneConflict || d.Pos.Line != 5 {
		t.Errorf("error %v, want %s in line 5", err, ZoneConflict)
	}
}
