// Package syntax checks single values, whatever topology they stand in: names, images,
// quantities, recipients, and the words that not every YAML tool reads alike.
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

// YAML11Bool reports whether YAML 1.1 reads a plain word as true or false
// although YAML 1.2 does not (yaml.org/type/bool.html), and as which. The tools
// of Kubernetes read YAML 1.1, the single letters included.
func YAML11Bool(text string) (meaning, is bool) {
	switch strings.ToLower(text) {
	case "y", "yes", "on":
		return true, true
	case "n", "no", "off":
		return false, true
	}
	return false, false
}

// PlainText gives the text of a scalar that every tool reads as the same text.
func PlainText(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || n.Anchor != "" {
		return "", false
	}
	if _, word := YAML11Bool(n.Value); word && !IsQuoted(n) {
		return "", false
	}
	return n.Value, true
}
