// Package syntax checks single values without the topology around them: names, images,
// quantities, recipients, and words that YAML tools read differently.
package syntax

import (
	"strings"

	"gopkg.in/yaml.v3"
)

// IsNull reports whether a node is YAML's null, an empty value included.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// IsQuoted reports whether a scalar can only be text.
func IsQuoted(n *yaml.Node) bool {
	return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
}

// YAML11Bool reports whether a plain word is a boolean in YAML 1.1 but not in YAML 1.2
// (yaml.org/type/bool.html), and returns its value. The tools of Kubernetes read YAML
// 1.1, including the single letters.
func YAML11Bool(text string) (value, ok bool) {
	switch strings.ToLower(text) {
	case "y", "yes", "on":
		return true, true
	case "n", "no", "off":
		return false, true
	}
	return false, false
}

// PlainText returns the text of a scalar; ok is false if some YAML tool reads a different
// value.
func PlainText(n *yaml.Node) (text string, ok bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || n.Anchor != "" {
		return "", false
	}
	if _, word := YAML11Bool(n.Value); word && !IsQuoted(n) {
		return "", false
	}
	return n.Value, true
}
