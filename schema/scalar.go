package schema

import (
	"encoding"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
)

var (
	textType   = reflect.TypeFor[encoding.TextUnmarshaler]()
	prefixType = reflect.TypeFor[netip.Prefix]()
)

// isText reports whether a struct is written as text, as addresses are.
func isText(v reflect.Value) bool { return reflect.PointerTo(v.Type()).Implements(textType) }

// isNull reports whether a node is YAML's null, an empty value included.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// isQuoted reports whether a scalar can only be text.
func isQuoted(n *yaml.Node) bool {
	return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
}

// booleanWord reports whether YAML 1.1 reads a plain word as true or false
// although YAML 1.2 does not (yaml.org/type/bool.html), and as which. The tools
// of Kubernetes read YAML 1.1, the single letters included.
func booleanWord(text string) (meaning, is bool) {
	switch strings.ToLower(text) {
	case "y", "yes", "on":
		return true, true
	case "n", "no", "off":
		return false, true
	}
	return false, false
}

// plainText gives the text of a scalar that every tool reads as the same text.
func plainText(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || n.Anchor != "" {
		return "", false
	}
	if _, word := booleanWord(n.Value); word && !isQuoted(n) {
		return "", false
	}
	return n.Value, true
}

// scalar reads one value that is not a collection.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, t *trail) {
	if n.Kind != yaml.ScalarNode {
		d.wrongType(n, t, kindName(v), scalarHint(t, n))
		return
	}
	if isNull(n) {
		return
	}
	if meaning, word := booleanWord(n.Value); word && !isQuoted(n) {
		d.report(n, t, diag.Diagnostic{
			Code: "yaml-boolean", Summary: n.Value + " is a boolean in YAML 1.1 and text in YAML 1.2",
			Hint: booleanHint(v, n.Value, meaning),
		})
		return
	}
	switch {
	case v.Kind() == reflect.Bool:
		d.boolean(n, v, t)
	case v.Kind() == reflect.Int:
		d.integer(n, v, t)
	default:
		d.text(n, v, t)
	}
}

func booleanHint(v reflect.Value, text string, meaning bool) string {
	if v.Kind() == reflect.Bool {
		return "write " + strconv.FormatBool(meaning)
	}
	return "put it in quotes: " + strconv.Quote(text)
}

func (d *decoder) boolean(n *yaml.Node, v reflect.Value, t *trail) {
	if n.ShortTag() != "!!bool" {
		d.wrongType(n, t, "true or false", "")
		return
	}
	v.SetBool(strings.EqualFold(n.Value, "true"))
}

func (d *decoder) integer(n *yaml.Node, v reflect.Value, t *trail) {
	number, err := strconv.Atoi(n.Value)
	switch {
	case isQuoted(n) && err == nil:
		d.wrongType(n, t, "a number", "remove the quotes")
	case isQuoted(n) || n.ShortTag() != "!!int":
		d.wrongType(n, t, "a whole number", "")
	case err != nil || strconv.Itoa(number) != n.Value:
		d.report(n, t, diag.Diagnostic{
			Code: "bad-number", Summary: n.Value + " is not a plain decimal number",
			Hint: "write digits only, without a leading zero, sign or underscore",
		})
	default:
		v.SetInt(int64(number))
	}
}

// text reads what is written as text: strings, durations, addresses and prefixes.
func (d *decoder) text(n *yaml.Node, v reflect.Value, t *trail) {
	text, ok := plainText(n)
	if !ok {
		d.wrongType(n, t, kindName(v), textHint(n, v, t.rules))
		return
	}
	if v.Kind() == reflect.String {
		v.SetString(text)
		return
	}
	err := setText(v, text)
	if p, is := v.Interface().(netip.Prefix); is && err == nil && p.IsValid() && p.Bits() == 0 {
		v.SetZero() // nothing else is to be said of it, and everything overlaps it
		d.report(n, t, diag.Diagnostic{Code: "bad-prefix", Summary: text + " is every address that there is",
			Hint: "write the ranges that are used: a prefix looks like 10.7.0.0/16 or fd00:7::/48"})
		return
	}
	if err != nil {
		v.SetZero()
		d.report(n, t, unreadable(text, v))
	}
}

// textHint says how a number is written as the text that it most likely stands for.
func textHint(n *yaml.Node, v reflect.Value, f *field) string {
	switch {
	case v.Type() == durationType && n.ShortTag() == "!!int":
		return "give the unit: " + withUnit(n.Value, f)
	case v.Kind() == reflect.String:
		return "put it in quotes: " + strconv.Quote(n.Value)
	}
	return ""
}

// withUnit gives a number as the duration that the field can hold: the first unit
// with which it is in the range, seconds before others.
func withUnit(number string, f *field) string {
	for _, unit := range []string{"s", "ms", "m"} {
		d, err := time.ParseDuration(number + unit)
		if err == nil && (f == nil || f.maxText == "" || int64(d) >= f.min && int64(d) <= f.max) {
			return number + unit
		}
	}
	return number + "s"
}

// unreadable says why a text is no value of v's type.
func unreadable(text string, v reflect.Value) diag.Diagnostic {
	if v.Type() == durationType {
		return diag.Diagnostic{Code: "bad-duration", Summary: fmt.Sprintf("%q is not a duration", text),
			Hint: "a duration looks like 250ms, 25s or 5m"}
	}
	if v.Type() != prefixType {
		return diag.Diagnostic{Code: "bad-address", Summary: fmt.Sprintf("%q is not an IP address", text),
			Hint: "an address looks like 169.254.73.53 or fd00::53"}
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return diag.Diagnostic{
			Code: "bad-prefix", Summary: text + " has no prefix length",
			Hint: fmt.Sprintf("write %s/%d for the one address, or the length of the network", a.WithZone(""), a.BitLen()),
		}
	}
	address, length, _ := strings.Cut(text, "/")
	if a, err := netip.ParseAddr(address); err == nil && a.Zone() == "" && digits(length) {
		return diag.Diagnostic{Code: "bad-prefix", Summary: fmt.Sprintf("%s has the prefix length %s", text, length),
			Hint: fmt.Sprintf("the length of an IPv%d prefix is 0 to %d", map[bool]int{true: 4, false: 6}[a.Is4()], a.BitLen())}
	}
	return diag.Diagnostic{Code: "bad-prefix", Summary: fmt.Sprintf("%q is not a prefix", text),
		Hint: "a prefix looks like 10.7.0.0/16 or fd00:7::/48"}
}

func digits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// wrongType notes a node that is not what the field holds.
func (d *decoder) wrongType(n *yaml.Node, t *trail, want, hint string) {
	d.report(n, t, diag.Diagnostic{Code: "wrong-type", Summary: "want " + want + ", have " + nodeKind(n), Hint: hint})
}

// mappingHint shows the mapping that a bare word in its place most likely stands for.
func mappingHint(t *trail, n *yaml.Node) string {
	if t != nil && t.label == "balance" && n.Kind == yaml.ScalarNode { // what the policies look like in prose
		return "write balance: {policy: " + n.Value + "}"
	}
	return ""
}

// scalarHint says how a policy with parameters is written.
func scalarHint(t *trail, n *yaml.Node) string {
	if t.label == "policy" && n.Kind == yaml.MappingNode {
		return "write {policy: weighted, weights: {a: 3, b: 1}} or {policy: failover, order: [a, b]}"
	}
	return ""
}

// kindName names what a field holds, for messages.
func kindName(v reflect.Value) string {
	switch {
	case v.Type() == durationType:
		return "a duration"
	case v.Type() == prefixType:
		return "a prefix"
	case isText(v):
		return "an IP address"
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.Kind() == reflect.Int:
		return "a number"
	}
	return "text"
}

// nodeKind names what a node holds, for messages.
func nodeKind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return "the boolean " + n.Value
	case "!!timestamp":
		return "the date " + n.Value
	case "!!null":
		return "nothing"
	}
	return "the text " + strconv.Quote(n.Value)
}

// explicitZero refuses a zero that is written out where the field may not be
// zero; Default could not tell it from a field that is left out.
func (d *decoder) explicitZero(n *yaml.Node, v reflect.Value, f field, t *trail) {
	numeric := v.Kind() == reflect.Int || v.Type() == durationType
	if !numeric || isNull(n) || !v.IsZero() || f.min <= 0 || f.def == "" && !f.required || d.bad[t.String()] {
		return
	}
	d.report(n, t, outOfRange(v, f))
}

// outOfRange is the finding for a number or duration outside its range.
func outOfRange(v reflect.Value, f field) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Error, Code: "out-of-range",
		Summary: fmt.Sprintf("%s is not in the range %s to %s", numberText(v), f.minText, f.maxText),
	}
}

// numberText writes a number or a duration as the file has it.
func numberText(v reflect.Value) string {
	if v.Type() == durationType {
		return time.Duration(v.Int()).String()
	}
	return strconv.FormatInt(v.Int(), 10)
}
