package fabric

import (
	"strings"
	"testing"
)

func TestMatches(t *testing.T) {
	t.Parallel()
	tests := []struct {
		patterns  string
		namespace string
		want      bool
	}{
		{"a", "a", true},
		{"a", "ab", false},
		{"a", "ba", false},
		{"*", "anything", true},
		{"*", "", true},
		{"team-*", "team-", true},
		{"team-*", "team-a", true},
		{"team-*", "a-team-a", false},
		{"*-team", "a-team", true},
		{"*-team", "a-team-b", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*b*c", "abc", true},
		{"a*b*c", "a-b-b-c", true},
		{"a*b*c", "acb", false},
		{"a*bc*bc", "abcbc", true},
		{"a*bc*bc", "abc", false},
		{"*ab*", "xxaab", true},
		{"**", "x", true},
		{"x y team-*", "team-1", true},
		{"x y team-*", "z", false},
	}
	for _, tt := range tests {
		d := &DynamicExports{Namespaces: strings.Fields(tt.patterns)}
		if have := d.Matches(tt.namespace); have != tt.want {
			t.Errorf("%s matches %q: %v", tt.patterns, tt.namespace, have)
		}
	}
	if (*DynamicExports)(nil).Matches("a") {
		t.Error("no dynamic exports match a namespace")
	}
}
