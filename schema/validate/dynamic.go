package validate

import (
	"fmt"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/paths"
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
			path = paths.Nth(path, i)
		}
		c.patterns(path+".namespaces", rule.Namespaces)
		c.known(path+".clusters", rule.Clusters)
		if rule.Clusters != nil && len(rule.Clusters) == 0 {
			c.Fail(diag.Diagnostic{Code: "required", Path: path + ".clusters", Summary: "is empty, so that nobody may export from there",
				Hint: "name the clusters that may, or remove the field: then any may"})
		}
	}
}

func (c *checker) patterns(path string, patterns []string) {
	seen := uniqueness{}
	for i, pattern := range patterns {
		item := paths.Nth(path, i)
		if c.pattern(item, pattern) {
			c.unique(seen, pattern, item, pattern+" is listed twice")
		}
	}
}

// pattern checks one pattern of namespaces and reports whether it is right.
func (c *checker) pattern(path, text string) bool {
	d := diag.Diagnostic{Code: "bad-pattern", Path: path, Summary: fmt.Sprintf("%q matches no namespace", text)}
	fixed := strings.ReplaceAll(text, "*", "")
	switch {
	case text == "":
		d.Code, d.Summary = "required", "is missing"
	case strings.IndexFunc(fixed, func(r rune) bool { return !fabric.IsLabelRune(r) }) >= 0:
		d.Summary = fmt.Sprintf("%q is not a pattern of namespaces", text)
		d.Hint = "use lower-case letters, digits, hyphens, and * for any characters"
		if lower := strings.ToLower(text); lower != text && c.plain(lower) {
			d.Hint = "write " + lower
		}
	case text[0] == '-' || text[len(text)-1] == '-':
		d.Hint = "no namespace begins or ends with a hyphen"
	case len(fixed) > fabric.MaxLabel:
		d.Summary = fmt.Sprintf("the pattern has %d characters beside *, a namespace at most %d", len(fixed), fabric.MaxLabel)
	default:
		return true
	}
	c.Fail(d)
	return false
}

// plain reports whether text has only what a pattern may have.
func (c *checker) plain(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return !fabric.IsLabelRune(r) && r != '*' }) < 0
}
