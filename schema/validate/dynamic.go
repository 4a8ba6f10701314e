package validate

import (
	"fmt"
	"strings"

	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
)

// dynamicExports checks the patterns.
func (c *checker) dynamicExports() {
	d := c.set.Spec.DynamicExports
	if d == nil {
		return
	}
	for i, rule := range d.Rules {
		path := "dynamicExports"
		if !d.Alone {
			path = fieldpath.Index(path, i)
		}
		c.patterns(path+".namespaces", rule.Namespaces)
		c.clusterNames(path+".clusters", rule.Clusters)
		if rule.Clusters != nil && len(rule.Clusters) == 0 {
			c.Fail("required", path+".clusters", "is empty, so no cluster may export from these namespaces",
				"name the clusters that may, or remove the field: then any may")
		}
	}
}

func (c *checker) patterns(path string, patterns []string) {
	seen := uniqueness{}
	for i, pattern := range patterns {
		item := fieldpath.Index(path, i)
		if c.pattern(item, pattern) {
			c.unique(seen, pattern, item, pattern+" is listed twice")
		}
	}
}

// pattern checks one pattern of namespaces and reports whether it is valid.
func (c *checker) pattern(path, text string) bool {
	code, summary, hint := "bad-pattern", fmt.Sprintf("%q matches no namespace", text), ""
	fixed := strings.ReplaceAll(text, "*", "")
	switch {
	case text == "":
		code, summary = "required", "is missing"
	case strings.IndexFunc(fixed, func(r rune) bool { return !fabric.IsLabelRune(r) }) >= 0:
		summary = fmt.Sprintf("%q is not a pattern of namespaces", text)
		hint = "use lower-case letters, digits, hyphens, and * for any characters"
		lower := strings.ToLower(text)
		if lower != text && strings.IndexFunc(lower, func(r rune) bool { return !fabric.IsLabelRune(r) && r != '*' }) < 0 {
			hint = "write " + lower
		}
	case text[0] == '-' || text[len(text)-1] == '-':
		hint = "no namespace begins or ends with a hyphen"
	case len(fixed) > fabric.MaxLabel:
		summary = fmt.Sprintf("the pattern has %d characters without *, a namespace at most %d", len(fixed), fabric.MaxLabel)
	default:
		return true
	}
	c.Fail(code, path, summary, hint)
	return false
}
