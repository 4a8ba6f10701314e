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
	if (*DynamicExports)(nil).Matches("a") || (*DynamicExports)(nil).Allows("a", "g1") {
		t.Error("no dynamic exports match a namespace")
	}
}

func TestAllows(t *testing.T) {
	t.Parallel()
	d := &DynamicExports{Namespaces: []string{"team-*"}, Restrictions: []DynamicRestriction{
		{Namespaces: []string{"team-pay", "team-gold*"}, Clusters: []string{"g1", "g2"}},
		{Namespaces: []string{"*-gold-x", "other"}, Clusters: []string{"g3"}},
	}}
	for namespace, want := range map[string]string{
		"team-a": "g1 g2 g3", "team-pay": "g1 g2", "team-gold": "g1 g2", "team-gold-x": "g1 g2 g3", "team-b-gold-x": "g3", "other": "", "foreign": "",
	} {
		var have []string
		for _, cluster := range []string{"g1", "g2", "g3"} {
			if d.Allows(namespace, cluster) {
				have = append(have, cluster)
			}
		}
		if text := strings.Join(have, " "); text != want {
			t.Errorf("in %s %q may export, want %q", namespace, text, want)
		}
	}
}
